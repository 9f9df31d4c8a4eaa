//! Who calls: two bearer tokens, compared without telling by the time it takes how much of one was right.

use std::fmt;

use subtle::{Choice, ConstantTimeEq};

/// What one may do. The administrator may do what a gateway may.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Caller {
    Gateway,
    Administrator,
}

/// The tokens that are known. Without any, everybody who can reach the port may do everything.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Tokens {
    pub gateway: Option<String>,
    pub administrator: Option<String>,
}

impl Tokens {
    pub fn any(&self) -> bool {
        self.gateway.is_some() || self.administrator.is_some()
    }

    /// Who presents this token, if anybody.
    pub fn caller(&self, presented: Option<&str>) -> Option<Caller> {
        if !self.any() {
            return Some(Caller::Administrator);
        }
        let presented = presented?.as_bytes();
        // Both are compared, whichever matches.
        let (gateway, administrator) = (same(&self.gateway, presented), same(&self.administrator, presented));
        if administrator.into() {
            Some(Caller::Administrator)
        } else {
            bool::from(gateway).then_some(Caller::Gateway)
        }
    }
}

fn same(known: &Option<String>, presented: &[u8]) -> Choice {
    known.as_ref().map_or(Choice::from(0), |known| known.as_bytes().ct_eq(presented))
}

/// Tells whether there are tokens, never which.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |token: &Option<String>| if token.is_some() { "set" } else { "none" };
        f.debug_struct("Tokens")
            .field("gateway", &told(&self.gateway))
            .field("administrator", &told(&self.administrator))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(gateway: Option<&str>, administrator: Option<&str>) -> Tokens {
        Tokens { gateway: gateway.map(str::to_owned), administrator: administrator.map(str::to_owned) }
    }

    #[test]
    fn each_token_opens_its_own_doors() {
        let both = tokens(Some("g"), Some("a"));
        assert_eq!(both.caller(Some("g")), Some(Caller::Gateway));
        assert_eq!(both.caller(Some("a")), Some(Caller::Administrator));
        for wrong in [None, Some(""), Some("ga"), Some("G")] {
            assert_eq!(both.caller(wrong), None, "{wrong:?}");
        }
        assert_eq!(tokens(Some("g"), None).caller(None), None);
        assert_eq!(tokens(None, None).caller(None), Some(Caller::Administrator));
    }

    #[test]
    fn a_token_is_not_told_to_a_log() {
        let told = format!("{:?}", tokens(Some("secret"), None));
        assert!(!told.contains("secret") && told.contains("none"), "{told}");
    }
}
