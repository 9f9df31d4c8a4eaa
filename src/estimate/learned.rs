//! What providers' reports teach of a tokenizer that is not the model's own: the mean ratio of what they
//! count to what it counts, by which later counts are corrected.
//!
//! The danger is whoever writes the texts: one can be chosen that our tokenizer counts too high or too low. So
//! an answer weighs little, the correction has bounds, and what is charged in the end is what the provider
//! reports, never the ratio (docs/adr/0014-learned-correction.md).

use tollgate_budget::Tokens;

use super::text::{scale_down, scale_up};

/// A tokenizer that is off by more is not a near one, and no text of a tenant's choice is to move holds farther.
const LEAST_MILLI: u64 = 500;
const MOST_MILLI: u64 = 2000;

/// What one answer may weigh, in tokens of the estimate: a long prompt tells hardly more than this much of it.
const MOST_PER_ANSWER: u64 = 2048;

/// Before this much is known of it a model is not corrected. A single answer is then an eighth of it at most.
const LEAST_ANSWERS: u64 = 20;
const LEAST_ESTIMATED: u64 = 8 * MOST_PER_ANSWER;

/// Beyond it all that is known counts for half, so that the ratio keeps following: what was said 128 answers of
/// full weight ago is half forgotten, and one answer is a hundredth of the whole.
const FULL: u64 = 128 * MOST_PER_ANSWER;

/// A model is off course when corrected by more than this, in thousandths.
const DRIFT_MILLI: u64 = 100;

/// So many answers in a row must find it off course before that is said: no burst of odd texts, and no model
/// that wavers about the mark, is worth a line each time.
const DRIFT_ANSWERS: u64 = 256;

/// What counts of text are multiplied by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Correction {
    milli: u64,
}

impl Correction {
    pub const NONE: Self = Self { milli: 1000 };

    pub const fn milli(self) -> u64 {
        self.milli
    }

    /// Rounded up.
    pub fn of(self, counted: Tokens) -> Tokens {
        Tokens::new(scale_up(counted.count(), self.milli, 1000))
    }

    /// The largest count that is not corrected to more than `limit`.
    pub(super) fn undone(self, limit: Tokens) -> Tokens {
        Tokens::new(scale_down(limit.count(), 1000, self.milli))
    }

    const fn is_drift(self) -> bool {
        self.milli.abs_diff(Self::NONE.milli) > DRIFT_MILLI
    }
}

/// Sums over answers, faded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Learned {
    answers: u64,
    estimated: u64,
    reported: u64,
}

impl Learned {
    pub const NOTHING: Self = Self { answers: 0, estimated: 0, reported: 0 };

    /// One answer: the count before any correction, or the correction would chase itself, and the report for
    /// the same text. Nothing, where either is: a report that leaves no token for a text was not made of it.
    pub fn from_answer(estimated: Tokens, reported: Tokens) -> Self {
        if estimated == Tokens::ZERO || reported == Tokens::ZERO {
            return Self::NOTHING;
        }
        let weight = estimated.count().min(MOST_PER_ANSWER);
        let reported = scale_up(reported.count(), weight, estimated.count());
        let [least, most] = [LEAST_MILLI, MOST_MILLI].map(|milli| scale_up(weight, milli, 1000));
        Self { answers: 1, estimated: weight, reported: reported.clamp(least, most) }
    }

    /// Both together.
    #[must_use]
    pub const fn merged(self, other: Self) -> Self {
        let sum = Self {
            answers: self.answers.saturating_add(other.answers),
            estimated: self.estimated.saturating_add(other.estimated),
            reported: self.reported.saturating_add(other.reported),
        };
        if sum.estimated <= FULL {
            return sum;
        }
        Self { answers: sum.answers / 2, estimated: sum.estimated / 2, reported: sum.reported / 2 }
    }

    pub fn correction(self) -> Correction {
        if self.answers < LEAST_ANSWERS || self.estimated < LEAST_ESTIMATED {
            return Correction::NONE;
        }
        let milli = scale_up(self.reported, 1000, self.estimated);
        Correction { milli: milli.clamp(LEAST_MILLI, MOST_MILLI) }
    }
}

/// What all workers know of one model.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Known {
    learned: Learned,
    /// Answers since the model went off course.
    off_course: u64,
}

/// Whether a model's tokenizer is worth a word to the operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Course {
    Steady,
    /// It has just been off course for long enough; not said again until it has come back.
    Left,
}

/// The bytes are not those of a [`Known`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownBytes;

/// Heads the bytes: their layout.
const MAGIC: [u8; 4] = *b"TGL\x01";

impl Known {
    #[must_use]
    pub fn with(self, fresh: Learned) -> (Self, Course) {
        let learned = self.learned.merged(fresh);
        let off_course = match learned.correction().is_drift() {
            true => self.off_course.saturating_add(fresh.answers),
            false => 0,
        };
        let left = self.off_course < DRIFT_ANSWERS && off_course >= DRIFT_ANSWERS;
        (Self { learned, off_course }, if left { Course::Left } else { Course::Steady })
    }

    pub fn correction(self) -> Correction {
        self.learned.correction()
    }

    pub fn encode(self) -> Vec<u8> {
        let Self { learned: Learned { answers, estimated, reported }, off_course } = self;
        let numbers = [answers, estimated, reported, off_course].map(u64::to_le_bytes);
        [MAGIC.as_slice(), numbers.as_flattened()].concat()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, UnknownBytes> {
        // Emptied on purpose: how an operator's tool may have a model learned anew.
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let (numbers, rest) = bytes.strip_prefix(&MAGIC).ok_or(UnknownBytes)?.as_chunks();
        let (&[answers, estimated, reported, off_course], []) = (numbers, rest) else {
            return Err(UnknownBytes);
        };
        let [answers, estimated, reported, off_course] =
            [answers, estimated, reported, off_course].map(u64::from_le_bytes);
        // Sums that merging never makes would never fade.
        if estimated > FULL || reported > 2 * FULL || answers > estimated {
            return Err(UnknownBytes);
        }
        Ok(Self { learned: Learned { answers, estimated, reported }, off_course })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn answer(estimated: u64, reported: u64) -> Learned {
        Learned::from_answer(Tokens::new(estimated), Tokens::new(reported))
    }

    fn answers(count: u64, estimated: u64, reported: u64) -> Learned {
        (0..count).fold(Learned::NOTHING, |sum, _| sum.merged(answer(estimated, reported)))
    }

    fn milli(learned: Learned) -> u64 {
        learned.correction().milli()
    }

    #[test]
    fn a_model_is_corrected_once_enough_is_known_of_it() {
        assert_eq!(milli(answers(19, 1000, 1300)), 1000, "too few answers");
        assert_eq!(milli(answers(20, 1000, 1300)), 1300);
        assert_eq!(milli(answers(163, 100, 130)), 1000, "too few tokens");
        assert_eq!(milli(answers(164, 100, 130)), 1300);
    }

    #[test]
    fn a_correction_is_rounded_up_and_never_makes_nothing_of_something() {
        let third = Correction { milli: 1333 };
        for (counted, corrected) in [(0, 0), (1, 2), (3, 4), (750, 1000), (u64::MAX, u64::MAX)] {
            assert_eq!(third.of(Tokens::new(counted)), Tokens::new(corrected));
        }
        assert_eq!(Correction { milli: LEAST_MILLI }.of(Tokens::new(1)), Tokens::new(1));
        assert_eq!(milli(answers(30, 1000, 1001)), 1001);
        assert_eq!(milli(answers(30, 1999, 2000)), 1001);
    }

    #[test]
    fn an_answer_without_text_or_report_teaches_nothing() {
        for (estimated, reported) in [(0, 0), (0, 9), (9, 0)] {
            assert_eq!(answer(estimated, reported), Learned::NOTHING);
        }
    }

    #[test]
    fn an_absurd_report_moves_the_mean_by_little() {
        let sane = answers(100, 1000, 1300);
        for (estimated, reported) in [(1000, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 1), (1, u64::MAX)] {
            let moved = milli(sane.merged(answer(estimated, reported)));
            assert!(moved.abs_diff(1300) <= 20, "{estimated}, {reported}: {moved}");
        }
        assert_eq!(milli(answers(1000, 1000, u64::MAX)), MOST_MILLI);
        assert_eq!(milli(answers(1000, 1000, 1)), LEAST_MILLI);
    }

    #[test]
    fn what_was_learned_long_ago_fades() {
        let old = answers(10_000, 1000, 1300);
        let after = |count| milli((0..count).fold(old, |sum, _| sum.merged(answer(2048, 1844))));
        assert!(after(16) > 1200);
        assert!((1050..1250).contains(&after(64)), "{}", after(64));
        assert!((895..=905).contains(&after(1000)), "{}", after(1000));
    }

    #[test]
    fn drift_is_told_once_a_stretch_and_only_when_it_lasts() {
        let run = |known: &mut Known, count, reported| {
            let told = (0..count).filter(|_| {
                let (next, course) = known.with(answer(2000, reported));
                *known = next;
                course == Course::Left
            });
            told.count()
        };
        let mut known = Known::default();
        assert_eq!(run(&mut known, 250, 3000), 0);
        assert_eq!(run(&mut known, 10_000, 3000), 1);
        assert_eq!(run(&mut known, 10_000, 2100), 0, "back within a tenth");
        assert_eq!(run(&mut known, 100, 3000), 0, "a burst");
        assert_eq!(run(&mut known, 1000, 2000), 0);
        assert_eq!(run(&mut known, 10_000, 1500), 1);
    }

    #[test]
    fn bytes_of_another_make_are_not_taken_for_knowledge() {
        let good = Known::default().with(answers(30, 1000, 1300)).0.encode();
        assert!(Known::decode(&good).is_ok());
        assert_eq!(Known::decode(&[]), Ok(Known::default()));
        let mut absurd = good.clone();
        absurd[12..20].fill(0xff);
        for bad in [b"garbage", &good[1..], &good[..good.len() - 1], &[&*good, b"x"].concat(), &*absurd] {
            assert_eq!(Known::decode(bad), Err(UnknownBytes));
        }
    }

    fn some() -> impl Strategy<Value = Learned> {
        let counts = prop_oneof![0..10_000_u64, any::<u64>()];
        proptest::collection::vec((counts.clone(), counts), 0..200).prop_map(|all| {
            all.iter().fold(Learned::NOTHING, |sum, (estimated, reported)| {
                sum.merged(answer(*estimated, *reported))
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn sums_and_corrections_stay_within_their_bounds(one in some(), other in some()) {
            let both = one.merged(other);
            prop_assert!(both.estimated <= FULL && both.reported <= 2 * FULL && both.answers <= both.estimated);
            prop_assert!((LEAST_MILLI..=MOST_MILLI).contains(&milli(both)));
            let known = Known { learned: both, off_course: 7 };
            prop_assert_eq!(Known::decode(&known.encode()), Ok(known));
        }

        #[test]
        fn the_order_of_merging_makes_no_difference_until_something_fades(a in some(), b in some(), c in some()) {
            prop_assert_eq!(a.merged(b), b.merged(a));
            if a.estimated + b.estimated + c.estimated <= FULL {
                prop_assert_eq!(a.merged(b).merged(c), a.merged(c).merged(b));
            }
            let halved = a.merged(b);
            let least = (a.estimated + b.estimated) / 2;
            prop_assert!(halved.estimated >= least, "no more than half fades at a time");
        }

        #[test]
        fn what_is_once_known_stays_known(known in some(), more in some()) {
            prop_assume!(known.answers >= LEAST_ANSWERS && known.estimated >= LEAST_ESTIMATED);
            let after = known.merged(more);
            prop_assert!(after.answers >= LEAST_ANSWERS && after.estimated >= LEAST_ESTIMATED);
        }

        #[test]
        fn a_limit_is_undone_to_the_last_count_within_it(
            limit in 0_u64..1 << 40,
            milli in LEAST_MILLI..=MOST_MILLI,
        ) {
            let (correction, limit) = (Correction { milli }, Tokens::new(limit));
            let most = correction.undone(limit);
            prop_assert!(correction.of(most) <= limit);
            prop_assert!(correction.of(most.saturating_add(Tokens::new(1))) > limit);
        }
    }
}
