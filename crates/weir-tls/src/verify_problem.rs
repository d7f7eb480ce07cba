//! OpenSSL's verdicts on certificates, by their numbers and texts.

/// A verdict of OpenSSL's: its number and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProblem {
    /// The number of OpenSSL's `X509_V_ERR_...`.
    pub code: u16,
    /// OpenSSL's text for it.
    pub text: &'static str,
}

macro_rules! problems {
    ($($name:ident $code:literal $text:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "each is OpenSSL's of that name")]
        impl VerifyProblem {
            $(pub const $name: VerifyProblem = VerifyProblem { code: $code, text: $text };)*
        }

        const ALL: &[VerifyProblem] = &[$(VerifyProblem::$name),*];
    };
}

problems! {
    NO_ISSUER 2 "unable to get issuer certificate",
    NO_CRL 3 "unable to get certificate CRL",
    BAD_SIGNATURE 7 "certificate signature failure",
    NOT_YET_VALID 9 "certificate is not yet valid",
    EXPIRED 10 "certificate has expired",
    CRL_NOT_YET_VALID 11 "CRL is not yet valid",
    CRL_EXPIRED 12 "CRL has expired",
    CRL_SIGNATURE 8 "CRL signature failure",
    SELF_SIGNED 18 "self-signed certificate",
    SELF_SIGNED_IN_CHAIN 19 "self-signed certificate in certificate chain",
    NO_LOCAL_ISSUER 20 "unable to get local issuer certificate",
    UNVERIFIED_LEAF 21 "unable to verify the first certificate",
    TOO_LONG 22 "certificate chain too long",
    REVOKED 23 "certificate revoked",
    PATH_LENGTH 25 "path length constraint exceeded",
    PURPOSE 26 "unsuitable certificate purpose",
    CRITICAL 34 "unhandled critical extension",
    NO_CERT_SIGN 32 "key usage does not include certificate signing",
    NO_CRL_ISSUER 33 "unable to get CRL issuer certificate",
    NO_CRL_SIGN 35 "key usage does not include CRL signing",
    CRL_CRITICAL 36 "unhandled critical CRL extension",
    CRL_SCOPE 44 "different CRL scope",
    NAME_CONSTRAINTS 51 "unsupported name constraint type",
    APPLICATION 50 "application verification failure",
    INVALID_CA 79 "invalid CA certificate",
    MALFORMED 1 "unspecified certificate verification error",
}

impl VerifyProblem {
    /// The one of this number; `None`: OpenSSL's `X509_V_OK`.
    pub fn of(code: u16) -> Option<VerifyProblem> {
        let text = "unknown certificate verification error";
        let known = || ALL.iter().copied().find(|it| it.code == code);
        (code != 0).then(|| known().unwrap_or(VerifyProblem { code, text }))
    }

    /// `optional_no_ca` lets these pass.
    pub fn is_about_trust(self) -> bool {
        matches!(self.code, 18..=21 | 27)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_openssls() {
        assert_eq!(VerifyProblem::of(0), None);
        assert_eq!(VerifyProblem::of(10), Some(VerifyProblem::EXPIRED));
        assert_eq!(
            VerifyProblem::of(99).map(|it| (it.code, it.text)),
            Some((99, "unknown certificate verification error"))
        );
        let about_trust: Vec<u16> = ALL.iter().filter(|it| it.is_about_trust()).map(|it| it.code).collect();
        assert_eq!(about_trust, [18, 19, 20, 21]);
    }
}
