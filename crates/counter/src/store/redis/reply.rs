//! What a script answered, read from front to back. What no script of ours answers is an error.

use redis::Value;
use tollgate_budget::{Amount, Limit, Quota, Span, Standing, Window};

use crate::store::StoreError;

#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self, StoreError> {
        let Value::Array(values) = value else { return Err(StoreError::Nonsense) };
        Ok(Self(values.into_iter()))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// None for what a script says with -1.
    pub(super) fn optional(&mut self) -> Result<Option<u64>, StoreError> {
        match self.0.next() {
            Some(Value::Int(-1)) => Ok(None),
            Some(Value::Int(number)) => u64::try_from(number).map(Some).map_err(|_| StoreError::Nonsense),
            _ => Err(StoreError::Nonsense),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        self.optional()?.ok_or(StoreError::Nonsense)
    }

    pub(super) fn index(&mut self) -> Result<usize, StoreError> {
        usize::try_from(self.number()?).map_err(|_| StoreError::Nonsense)
    }

    pub(super) fn amount(&mut self) -> Result<Amount, StoreError> {
        Amount::new(self.number()?).ok_or(StoreError::Nonsense)
    }

    pub(super) fn optional_amount(&mut self) -> Result<Option<Amount>, StoreError> {
        let amount = |units| Amount::new(units).ok_or(StoreError::Nonsense);
        self.optional()?.map(amount).transpose()
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => {
                String::from_utf8(bytes.to_vec()).map_err(|_| StoreError::Nonsense)
            }
            _ => Err(StoreError::Nonsense),
        }
    }

    /// All that is left.
    pub(super) fn indexes(&mut self) -> Result<Vec<usize>, StoreError> {
        let mut all = Vec::new();
        while !self.is_over() {
            all.push(self.index()?);
        }
        Ok(all)
    }

    pub(super) fn standing(&mut self) -> Result<Standing, StoreError> {
        Ok(Standing {
            capacity: self.amount()?,
            held: self.amount()?,
            spent: self.amount()?,
            reset: Span::from_millis(self.number()?),
        })
    }

    pub(super) fn limit(&mut self) -> Result<Limit, StoreError> {
        let (kind, span) = (self.number()?, Span::from_millis(self.number()?));
        let quota = Quota::of(self.amount()?);
        let burst = self.optional_amount()?;
        let window = match kind {
            0 => Window::Sliding(span),
            1 => Window::Fixed(span),
            2 => Window::Bucket { period: span, burst },
            _ => return Err(StoreError::Nonsense),
        };
        Ok(Limit { window, quota })
    }
}
