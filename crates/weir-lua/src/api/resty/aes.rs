//! AES as `resty.aes` has it, on aws-lc's EVP interface: aws-lc-rs derives no keys from passwords, and knows GCM with
//! nonces of 12 bytes only.

use std::ffi::c_int;
use std::ptr;

use aws_lc_sys as evp;

use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_cipher.known", 0, |l| {
        let (bits, mode) = (expect_number(l, 1, "cipher")?, expect_string(&l, 2, "cipher")?);
        l.push_boolean(AesCipher::named(bits as u32, &mode).is_some());
        Ok(CallDone::Results(1))
    }),
    function("_cipher.derive", 0, derive),
    function("_cipher.crypt", 0, crypt),
];

/// The longest block.
const BLOCK: usize = 16;
/// A tag of GCM.
const TAG: usize = 16;

/// A cipher and mode of aws-lc.
#[derive(Clone, Copy)]
struct AesCipher {
    evp: *const evp::EVP_CIPHER,
    /// Its key's length, bytes.
    key: usize,
    /// It authenticates.
    gcm: bool,
}

impl AesCipher {
    fn named(bits: u32, mode: &[u8]) -> Option<AesCipher> {
        // SAFETY: these functions give pointers to what is constant.
        let evp = unsafe {
            match (bits, mode) {
                (128, b"cbc") => evp::EVP_aes_128_cbc(),
                (128, b"ecb") => evp::EVP_aes_128_ecb(),
                (128, b"ctr") => evp::EVP_aes_128_ctr(),
                (128, b"ofb") => evp::EVP_aes_128_ofb(),
                (128, b"cfb1") => evp::EVP_aes_128_cfb1(),
                (128, b"cfb8") => evp::EVP_aes_128_cfb8(),
                (128, b"cfb128") => evp::EVP_aes_128_cfb128(),
                (128, b"gcm") => evp::EVP_aes_128_gcm(),
                (192, b"cbc") => evp::EVP_aes_192_cbc(),
                (192, b"ecb") => evp::EVP_aes_192_ecb(),
                (192, b"ctr") => evp::EVP_aes_192_ctr(),
                (192, b"ofb") => evp::EVP_aes_192_ofb(),
                (192, b"cfb1") => evp::EVP_aes_192_cfb1(),
                (192, b"cfb8") => evp::EVP_aes_192_cfb8(),
                (192, b"cfb128") => evp::EVP_aes_192_cfb128(),
                (192, b"gcm") => evp::EVP_aes_192_gcm(),
                (256, b"cbc") => evp::EVP_aes_256_cbc(),
                (256, b"ecb") => evp::EVP_aes_256_ecb(),
                (256, b"ctr") => evp::EVP_aes_256_ctr(),
                (256, b"ofb") => evp::EVP_aes_256_ofb(),
                (256, b"cfb1") => evp::EVP_aes_256_cfb1(),
                (256, b"cfb8") => evp::EVP_aes_256_cfb8(),
                (256, b"cfb128") => evp::EVP_aes_256_cfb128(),
                (256, b"gcm") => evp::EVP_aes_256_gcm(),
                _ => return None,
            }
        };
        Some(AesCipher { evp, key: bits as usize / 8, gcm: mode == b"gcm" })
    }

    /// The cipher in the first two arguments.
    fn of(l: LuaState) -> Result<AesCipher, LuaRaise> {
        let (bits, mode) = (expect_number(l, 1, "cipher")?, expect_string(&l, 2, "cipher")?);
        AesCipher::named(bits as u32, &mode).ok_or_else(|| LuaRaise::text("unknown cipher"))
    }
}

/// `bits, mode, digest, salt, password, rounds`: a key and an IV as OpenSSL makes them of a password.
fn derive(l: LuaState) -> CallOutcome {
    let cipher = AesCipher::of(l)?;
    // SAFETY: these functions give pointers to what is constant.
    let digest = unsafe {
        match &*expect_string(&l, 3, "new")? {
            b"md5" => evp::EVP_md5(),
            b"sha1" => evp::EVP_sha1(),
            b"sha224" => evp::EVP_sha224(),
            b"sha256" => evp::EVP_sha256(),
            b"sha384" => evp::EVP_sha384(),
            b"sha512" => evp::EVP_sha512(),
            _ => return Err(LuaRaise::argument(3, "new", "unknown digest")),
        }
    };
    let salt = if l.is_none_or_nil(4) { None } else { Some(expect_string(&l, 4, "new")?) };
    let (password, rounds) = (expect_string(&l, 5, "new")?, expect_number(l, 6, "new")?);
    if salt.as_ref().is_some_and(|salt| salt.len() != 8) {
        return fail(l, "salt must be 8 characters or nil");
    }
    let (mut key, mut iv) = ([0u8; 64], [0u8; 64]);
    // SAFETY: the salt has the 8 bytes that are read of it, key and IV have room for the longest there are.
    let made = unsafe {
        evp::EVP_BytesToKey(
            cipher.evp,
            digest,
            salt.as_ref().map_or(ptr::null(), |salt| salt.as_ptr()),
            password.as_ptr(),
            password.len(),
            rounds as u32,
            key.as_mut_ptr(),
            iv.as_mut_ptr(),
        )
    };
    if made as usize != cipher.key {
        return fail(l, "failed to generate key and iv");
    }
    l.push_bytes(&key[..cipher.key]);
    l.push_bytes(&iv[..cipher.key]);
    Ok(CallDone::Results(2))
}

/// `bits, mode, encrypt, key, iv, padded, text, tag, more`: what becomes of the text, and for GCM its tag.
fn crypt(l: LuaState) -> CallOutcome {
    let cipher = AesCipher::of(l)?;
    let (encrypt, padded) = (l.boolean(3), l.boolean(6));
    let text = expect_string(&l, 7, if encrypt { "encrypt" } else { "decrypt" })?;
    let (tag, more) = (l.bytes(8).unwrap_or_default().to_vec(), l.bytes(9).map(<[u8]>::to_vec));
    let job = CipherJob {
        cipher,
        encrypt,
        padded,
        key: &expect_string(&l, 4, "new")?,
        iv: &expect_string(&l, 5, "new")?,
        tag: &tag,
        more: more.as_deref(),
    };
    match job.run(&text) {
        Ok((made, tag)) => {
            l.push_bytes(&made);
            l.push_bytes(&tag);
            Ok(CallDone::Results(2))
        }
        Err(step) => fail(l, &format!("EVP_{}{step} failed", if encrypt { "Encrypt" } else { "Decrypt" })),
    }
}

/// One text to be made another.
struct CipherJob<'j> {
    cipher: AesCipher,
    encrypt: bool,
    padded: bool,
    key: &'j [u8],
    iv: &'j [u8],
    /// What GCM's text must have, for decrypting.
    tag: &'j [u8],
    /// What GCM authenticates besides the text.
    more: Option<&'j [u8]>,
}

/// Frees its context.
struct CipherContext(*mut evp::EVP_CIPHER_CTX);

impl Drop for CipherContext {
    fn drop(&mut self) {
        // SAFETY: it came from EVP_CIPHER_CTX_new, and nothing else refers to it.
        unsafe { evp::EVP_CIPHER_CTX_free(self.0) }
    }
}

impl CipherJob<'_> {
    /// The other text and its tag.
    ///
    /// # Errors
    /// The name of the step that failed.
    fn run(&self, text: &[u8]) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        // SAFETY: allocates or gives a null pointer.
        let context = CipherContext(unsafe { evp::EVP_CIPHER_CTX_new() });
        if context.0.is_null() || self.key.len() != self.cipher.key || !self.begin(&context) {
            return Err("Init_ex");
        }
        if let Some(more) = self.more.filter(|_| self.cipher.gcm) {
            self.update(&context, more, ptr::null_mut()).ok_or("Update")?;
        }
        let mut out = vec![0; text.len() + 2 * BLOCK];
        let made = self.update(&context, text, out.as_mut_ptr()).ok_or("Update")?;
        if self.cipher.gcm && !self.encrypt && self.tag.len() == TAG {
            // SAFETY: reads a tag's bytes, which are there.
            unsafe {
                let (what, tag) = (evp::EVP_CTRL_AEAD_SET_TAG, self.tag.as_ptr().cast_mut().cast());
                evp::EVP_CIPHER_CTX_ctrl(context.0, what, TAG as c_int, tag);
            }
        }
        let mut rest: c_int = 0;
        // SAFETY: after what was made there is room for a block.
        let done = unsafe {
            let end = out.as_mut_ptr().add(made);
            match self.encrypt {
                true => evp::EVP_EncryptFinal_ex(context.0, end, &raw mut rest),
                false => evp::EVP_DecryptFinal_ex(context.0, end, &raw mut rest),
            }
        };
        if done != 1 {
            return Err("Final_ex");
        }
        out.truncate(made + rest as usize);
        let mut tag = Vec::new();
        if self.cipher.gcm && self.encrypt {
            tag.resize(TAG, 0);
            // SAFETY: writes a tag's bytes, for which there is room.
            unsafe {
                let what = evp::EVP_CTRL_AEAD_GET_TAG;
                evp::EVP_CIPHER_CTX_ctrl(context.0, what, TAG as c_int, tag.as_mut_ptr().cast());
            }
        }
        Ok((out, tag))
    }

    /// Takes key, IV and padding.
    fn begin(&self, context: &CipherContext) -> bool {
        let evp = self.cipher.evp;
        let length = c_int::try_from(self.iv.len()).unwrap_or(c_int::MAX);
        // An IV may be shorter than the cipher's, and is then filled with zeros, as a buffer of C would be.
        let mut iv = self.iv.to_vec();
        iv.resize(self.iv.len().max(2 * BLOCK), 0);
        let init = if self.encrypt { evp::EVP_EncryptInit_ex } else { evp::EVP_DecryptInit_ex };
        // SAFETY: the context is new, the key has the cipher's length, the IV at least its longest.
        unsafe {
            init(context.0, evp, ptr::null_mut(), ptr::null(), ptr::null()) == 1
                && (!self.cipher.gcm
                    || evp::EVP_CIPHER_CTX_ctrl(
                        context.0,
                        evp::EVP_CTRL_AEAD_SET_IVLEN,
                        length,
                        ptr::null_mut(),
                    ) == 1)
                && evp::EVP_CIPHER_CTX_set_padding(context.0, c_int::from(self.padded)) == 1
                && init(context.0, ptr::null(), ptr::null_mut(), self.key.as_ptr(), iv.as_ptr()) == 1
        }
    }

    /// Passes `text`; how many bytes were written to `out`.
    fn update(&self, context: &CipherContext, text: &[u8], out: *mut u8) -> Option<usize> {
        let (mut made, len) = (0, c_int::try_from(text.len()).ok()?);
        // SAFETY: `out` is null, for what is authenticated only, or has room for the text and a block more.
        let done = unsafe {
            match self.encrypt {
                true => evp::EVP_EncryptUpdate(context.0, out, &raw mut made, text.as_ptr(), len),
                false => evp::EVP_DecryptUpdate(context.0, out, &raw mut made, text.as_ptr(), len),
            }
        };
        (done == 1).then_some(made as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{AesCipher, CipherJob};

    #[test]
    fn every_mode_undoes_itself() {
        let text = b"a text of more than one block, and not of whole blocks";
        for bits in [128, 192, 256] {
            for mode in ["cbc", "ecb", "ctr", "ofb", "cfb1", "cfb8", "cfb128", "gcm"] {
                let cipher = AesCipher::named(bits, mode.as_bytes()).expect("a known cipher");
                let (key, iv) = (vec![7; cipher.key], [9; 16]);
                let mut job = CipherJob {
                    cipher,
                    encrypt: true,
                    padded: true,
                    key: &key,
                    iv: &iv,
                    tag: &[],
                    more: Some(b"more"),
                };
                let (made, tag) = job.run(text).expect("it can be encrypted");
                assert_ne!(made, text, "{bits} {mode}");
                (job.encrypt, job.tag) = (false, &tag);
                assert_eq!(job.run(&made).expect("it can be decrypted").0, text, "{bits} {mode}");
                if mode == "gcm" {
                    job.more = Some(b"less");
                    assert_eq!(job.run(&made), Err("Final_ex"));
                }
            }
        }
        assert!(AesCipher::named(128, b"xts").is_none());
    }

    /// NIST SP 800-38A, F.2.1, first block.
    #[test]
    fn the_first_block_of_the_standard() {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("it is written in hex"))
                .collect()
        };
        let job = CipherJob {
            cipher: AesCipher::named(128, b"cbc").expect("a known cipher"),
            encrypt: true,
            padded: false,
            key: &bytes("2b7e151628aed2a6abf7158809cf4f3c"),
            iv: &bytes("000102030405060708090a0b0c0d0e0f"),
            tag: &[],
            more: None,
        };
        let made = job.run(&bytes("6bc1bee22e409f96e93d7e117393172a")).expect("a whole block");
        assert_eq!(made.0, bytes("7649abac8119b246cee98e9b12e9197d"));
    }
}
