//! An incident that windows are made of, and what is said of it.
