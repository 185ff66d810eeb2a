//! How sure a verdict is, learnt from verdicts whose truth is known: which verdicts these are (`verdicts`), the model (`logistic`), and
//! what is written of it and of how good its forecasts are (`written`). All but `verdicts` is pure.

pub mod logistic;
pub mod verdicts;
pub mod written;
