//! Every version of HTTP on one side against every version on the other.

mod curl;
mod frames;
mod matrix;
