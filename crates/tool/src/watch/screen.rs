//! The terminal during live output: an alternate screen without echo and cursor. It is restored at every exit except by SIGKILL.

use std::io::{self, Write, stdout};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, SetTitle};
use crossterm::{execute, queue};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::sampler::Board;
use crate::watch::Order;
use crate::watch::table::View;

/// Lines that do not show filters: the server, the columns, the number of hidden filters, the other databases, the key bindings.
const OTHER_LINES: u16 = 5;
/// Save and restore the window's title, in terminals with a title stack (XTWINOPS).
const SAVE_TITLE: &str = "\u{1b}[22;0t";
const RESTORE_TITLE: &str = "\u{1b}[23;0t";

pub(super) enum Request {
    End,
    Order(Order),
    /// Redraw after a change of the window's size.
    Draw,
}

/// The terminal. Dropping this restores it.
pub(super) struct Screen;

impl Screen {
    /// Switches to the alternate screen. The window's title names the server.
    pub fn enter(server: &str) -> Result<Self> {
        // A separate thread, because the main thread may be waiting for a reply.
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // Nothing is drawn from here on: the process ends while it holds this lock.
                let mut out = stdout().lock();
                restore(&mut out);
                _ = emulate_default_handler(signal);
            }
        })?;
        terminal::enable_raw_mode()?;
        let screen = Self;
        let title = SetTitle(format!("{server}: bloomgate watch"));
        execute!(stdout(), EnterAlternateScreen, Hide, Print(SAVE_TITLE), title)?;
        Ok(screen)
    }

    /// Draws the last sample. `lost` is the error of a lost server, shown in the last line.
    pub fn draw(&self, board: &Board, order: Order, lost: Option<&str>) -> io::Result<()> {
        let (columns, rows) = size();
        let mut lines = View { board, order, top: self::rows() }.lines(true);
        lines.truncate(usize::from(rows.saturating_sub(1)));
        let by = match order {
            Order::Memory => "memory",
            Order::Activity => "activity",
            Order::Full => "fullness",
        };
        let keys = format!("by {by} · m memory · a activity · f fullness · q quits");
        lines.push(lost.map_or(keys, |lost| format!("waiting for the server · q quits · {lost}")));
        let mut out = stdout().lock();
        queue!(out, MoveTo(0, 0))?;
        for (number, line) in lines.iter().enumerate() {
            let line: String = line.chars().take(usize::from(columns)).collect();
            let end = if number + 1 < lines.len() { "\r\n" } else { "" };
            queue!(out, Clear(ClearType::CurrentLine), Print(line), Print(end))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }

    pub fn wait(&self, until: Instant) -> io::Result<Option<Request>> {
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    if let Some(request) = meaning(key) {
                        return Ok(Some(request));
                    }
                }
                Event::Resize(..) => return Ok(Some(Request::Draw)),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Returns the number of filters that fit.
pub(super) fn rows() -> usize {
    usize::from(size().1.saturating_sub(OTHER_LINES)).max(1)
}

/// Returns the columns and lines. Some terminals report 0.
fn size() -> (u16, u16) {
    terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

fn meaning(key: KeyEvent) -> Option<Request> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Request::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Request::End),
        KeyCode::Char('m') => Some(Request::Order(Order::Memory)),
        KeyCode::Char('a') => Some(Request::Order(Order::Activity)),
        KeyCode::Char('f') => Some(Request::Order(Order::Full)),
        _ => None,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&mut stdout());
    }
}

fn restore(out: &mut impl Write) {
    _ = execute!(out, Print(RESTORE_TITLE), Show, LeaveAlternateScreen);
    _ = terminal::disable_raw_mode();
}
