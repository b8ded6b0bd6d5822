//! One binary: what formulas are, what they equal, what is planned of them.

mod compositions;
