//! TODO
use crate::cli::DemoArgs;
use std::io;
/// todo
/// # Errors
/// todo
pub fn main(_arguments: &DemoArgs) -> io::Result<()> {
    Ok(())
}
