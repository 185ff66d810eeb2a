//! How sure a verdict is, learnt from verdicts whose truth is known: which verdicts these are (`verdicts`), the model (`logistic`), how good its
//! forecasts are (`quality`), and what is written of both (`written`). All but `verdicts` is pure.

pub mod logistic;
pub mod quality;
pub mod verdicts;
pub mod written;
