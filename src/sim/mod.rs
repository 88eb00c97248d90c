//! TODO
use crate::cli::SimArgs;
use std::io;
/// todo
/// # Errors
/// todo
pub fn main(_arguments: &SimArgs) -> io::Result<()> {
    Ok(())
}
