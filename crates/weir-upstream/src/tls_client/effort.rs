//! Where a step of a handshake runs.

use weir_tls::Effort;

/// Runs a step of a handshake whose key takes `effort`: here, or where nobody is held up by it.
pub async fn at<R: Send + 'static>(effort: Effort, step: impl FnOnce() -> R + Send + 'static) -> R {
    match effort {
        Effort::Short => step(),
        Effort::Long => weir_rt::computing(step).await,
        Effort::Device => weir_rt::asking_device(step).await,
    }
}
