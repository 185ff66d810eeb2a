//! Tests of what is gathered.
