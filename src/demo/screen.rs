//! Where the demo shows itself: redrawn in place on a terminal, line after line elsewhere.

use std::io::{self, IsTerminal as _, Write};

use crate::figures::{terminal, width};

/// Standard output. On a terminal the cursor is hidden and long lines are clipped until this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    /// Lines drawn in place, which the next drawing replaces; absent where nothing can be redrawn.
    drawn: Option<usize>,
}

const PREPARE: &str = "\x1b[?25l\x1b[?7l";
const RESTORE: &str = "\x1b[?7h\x1b[?25h";

impl Screen {
    /// Prepares the terminal, if it is one that can move its cursor.
    ///
    /// # Errors
    /// If it can't be written to.
    pub(super) fn open() -> io::Result<Self> {
        let moves = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let screen = Self { drawn: moves.then_some(0) };
        if moves {
            write(PREPARE)?;
        }
        Ok(screen)
    }

    /// Whether what is drawn is replaced by the next drawing.
    pub(super) const fn redraws(&self) -> bool {
        self.drawn.is_some()
    }

    /// Columns; absent if there is no end to a line.
    pub(super) fn width(&self) -> Option<u16> {
        self.drawn.and_then(|_| width())
    }

    /// Shows `text` in place of what was drawn before. More lines than the terminal has are left out: it could not
    /// go back to the first.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn draw(&mut self, text: &str) -> io::Result<()> {
        let Some(drawn) = &mut self.drawn else { return write(text) };
        let room = terminal().map_or(24, |(_, rows)| usize::from(rows)).saturating_sub(1).max(1);
        let (frame, lines) = frame(*drawn, text, room);
        *drawn = lines;
        write(&frame)
    }

    /// Shows `text` in place of what was drawn before, to stay.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn keep(&mut self, text: &str) -> io::Result<()> {
        let Some(drawn) = &mut self.drawn else { return write(text) };
        let (frame, _) = frame(*drawn, text, usize::MAX);
        *drawn = 0;
        write(&frame)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.redraws() {
            // Nothing is left to be done about a terminal that is gone.
            let _ = write(RESTORE);
        }
    }
}

/// The bytes that replace `drawn` lines by at most `room` lines of `text`, and how many those are.
fn frame(drawn: usize, text: &str, room: usize) -> (String, usize) {
    let mut frame = if drawn > 0 { format!("\x1b[{drawn}A\r\x1b[J") } else { String::new() };
    let mut lines = 0;
    for line in text.lines().take(room) {
        frame.push_str(line);
        frame.push('\n');
        lines += 1;
    }
    (frame, lines)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_replaces_the_one_before() {
        assert_eq!(frame(0, "a\nb\n", 10), ("a\nb\n".to_owned(), 2));
        assert_eq!(frame(2, "c", 10), ("\x1b[2A\r\x1b[Jc\n".to_owned(), 1));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        assert_eq!(frame(0, "a\nb\nc\n", 2), ("a\nb\n".to_owned(), 2));
    }
}
