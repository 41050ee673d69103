//! `spin:variables`: the variables of the component.

use wasmtime::component::{Accessor, HasSelf};

use super::generated::spin::variables::variables::{Error, Host, HostWithStore};
use crate::instances::State;
use crate::variables::LookupError;

impl Host for State {}

impl HostWithStore<State> for HasSelf<State> {
    async fn get(
        accessor: &Accessor<State, Self>,
        name: String,
    ) -> wasmtime::Result<Result<String, Error>> {
        let value = accessor.with(|mut access| access.get().services.variables.get(&name));
        Ok(value.map_err(|error| match error {
            LookupError::InvalidName(text) => Error::InvalidName(text),
            LookupError::Undefined(text) => Error::Undefined(text),
        }))
    }
}
