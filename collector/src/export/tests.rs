//! Tests of roll-ups and rows.
