//! Where a step of a handshake runs.

use weir_tls::KeyEffort;

/// Runs a step of a handshake whose key takes `effort`: here, or where it holds up no request.
pub async fn at<R: Send + 'static>(effort: KeyEffort, step: impl FnOnce() -> R + Send + 'static) -> R {
    match effort {
        KeyEffort::Short => step(),
        KeyEffort::Long => weir_rt::computing(step).await,
        KeyEffort::Device => weir_rt::asking_device(step).await,
    }
}
