//! What only the demonstration needs beside lab, programs and score: whether the machine can bear it, and what was named against what was
//! injected, for people.

pub mod preflight;
pub mod verdict;
