//! Every operator, in f64, in the most obvious loops: the truth for all tests.
