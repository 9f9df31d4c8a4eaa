//! A piece that is longer than anyone writes, while it still grows.
//!
//! Both its bytes and its end come in parts. Mostly the piece ends where its run ends; but a scanner may
//! have to turn back: "漢AAAA" is one piece if a small letter follows and two if not, and newline and
//! spaces are one if a newline follows. Then both are counted side by side, until it is known.

use crate::Encoding;
use crate::piece::Workspace;
use crate::scan::{Run, contraction};
use crate::strand::Strand;

#[derive(Clone, Debug)]
pub(crate) struct Unbroken {
    encoding: Encoding,
    run: Run,
    /// The tokens if the piece does not turn back.
    whole: Strand,
    turn: Turn,
}

/// Where the piece would end if its run ended now.
#[derive(Clone, Debug)]
enum Turn {
    /// Where the run ends: there is nowhere else.
    Nowhere,
    /// At this place of the whole; what is behind is another piece.
    Back { to: usize },
    /// At a place whose bytes the whole does not have any more.
    Forked { before: usize, behind: Strand },
}

impl Unbroken {
    /// Takes the piece that `tail` starts with out of it, if it is one that can be long.
    pub(crate) fn open(encoding: Encoding, workspace: &mut Workspace, tail: &mut Vec<u8>) -> Option<Self> {
        let (run, from) = Run::open(encoding, tail)?;
        let mut whole = Strand::default();
        whole.push(tail.get(..from).unwrap_or_default());
        let mut unbroken = Self { encoding, run, whole, turn: Turn::Nowhere };
        let eaten = unbroken.eat(workspace, tail.get(from..).unwrap_or_default());
        tail.drain(..from + eaten);
        Some(unbroken)
    }

    /// Takes what continues the run; returns its length.
    pub(crate) fn eat(&mut self, workspace: &mut Workspace, text: &[u8]) -> usize {
        let Reach { run, end, turn } = reach(self.encoding, self.run, text);
        let eaten = text.get(..end).unwrap_or_default();
        self.run = run;
        if let Some(turn) = turn {
            self.turn = Turn::Back { to: self.whole.bytes().len() + turn };
        }
        self.whole.push(eaten);
        if let Turn::Forked { behind, .. } = &mut self.turn {
            behind.push(eaten);
            behind.keep(self.encoding, workspace);
        }
        if self.whole.is_ripe() {
            self.fork(workspace);
            let forgotten = self.whole.keep(self.encoding, workspace);
            if let Turn::Back { to } = &mut self.turn {
                *to -= forgotten;
            }
        }
        end
    }

    /// Before the whole forgets bytes: counts apart what would be another piece.
    fn fork(&mut self, workspace: &mut Workspace) {
        let Turn::Back { to } = self.turn else { return };
        if to < self.whole.bytes().len() {
            let (before, behind) = self.whole.split(self.encoding, workspace, to);
            self.turn = Turn::Forked { before, behind };
        }
    }

    /// The tokens if the text ends here.
    pub(crate) fn total(&self, workspace: &mut Workspace) -> usize {
        if self.run == Run::Spaces && self.encoding.spaces_end_with_text() {
            return self.whole.total(self.encoding, workspace);
        }
        let (before, behind) = self.turned(workspace);
        before + behind.total(self.encoding, workspace)
    }

    /// The tokens if `rest` follows, which does not continue the run; and what is left for other pieces.
    pub(crate) fn end(&self, workspace: &mut Workspace, rest: &[u8]) -> (usize, Vec<u8>) {
        let (before, mut behind) = self.turned(workspace);
        let mut left = Vec::new();
        let taken = match self.run {
            Run::Capitals | Run::Small => contraction(rest, 0),
            Run::Letters | Run::Signs | Run::Trail => 0,
            Run::Spaces => {
                // The last space goes with what follows, unless the run ended in a newline.
                left.extend(behind.pop_character());
                0
            }
        };
        let (contraction, rest) = rest.split_at_checked(taken).unwrap_or((&[], rest));
        behind.push(contraction);
        left.extend_from_slice(rest);
        (before + behind.total(self.encoding, workspace), left)
    }

    /// The tokens before the place to turn back to, and the piece behind it.
    fn turned(&self, workspace: &mut Workspace) -> (usize, Strand) {
        match &self.turn {
            Turn::Nowhere => (0, self.whole.clone()),
            Turn::Back { to } if *to == self.whole.bytes().len() && self.run != Run::Spaces => {
                (0, self.whole.clone())
            }
            Turn::Back { to } => self.whole.split(self.encoding, workspace, *to),
            Turn::Forked { before, behind } => (*before, behind.clone()),
        }
    }
}

/// How far a run goes in a text.
struct Reach {
    run: Run,
    end: usize,
    /// The last place where the piece may end, if there is one.
    turn: Option<usize>,
}

fn reach(encoding: Encoding, mut run: Run, text: &[u8]) -> Reach {
    let mut end = 0;
    let mut turn = None;
    while let Some(step) = run.step(encoding, text, end) {
        run = step.run;
        end += step.length;
        if step.may_end {
            turn = Some(end);
        }
    }
    Reach { run, end, turn }
}
