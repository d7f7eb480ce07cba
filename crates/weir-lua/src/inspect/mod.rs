//! What is shown of VMs while they run: reports, metrics, the census of objects, samples of stacks.

#[cfg(lua_walk)]
pub(crate) mod census;
pub(crate) mod jit_advice;
pub(crate) mod report;
#[cfg(lua_walk)]
pub(crate) mod sampler;
