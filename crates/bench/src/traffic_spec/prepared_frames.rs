//! Prepared synthetic frames of one stream.

use super::error::PrepareError;
use crate::generator::packet_source::SyntheticFrames;
use traffic::{FieldSpec, Fields, Flows, Mix, Stack, Template, TemplateError};

/// Frames of a set of flows, and the fields that change from packet to packet.
pub(super) struct PreparedFrames {
    template: Template,
    fields: Option<Fields>,
}

impl PreparedFrames {
    /// Builds the frames of a mix; without a stack they are UDP or TCP as the flows.
    ///
    /// # Errors
    /// Frames that are too small, flows of another kind than the stack, fields that the frames do not have.
    pub(super) fn new(
        flows: &Flows,
        mix: &Mix,
        stack: Option<&Stack>,
        fields: &[FieldSpec],
    ) -> Result<PreparedFrames, PrepareError> {
        let template = match stack {
            Some(stack) => Template::stacked(flows, mix, true, stack)?,
            None => Template::new(flows, mix, true).map_err(TemplateError::from)?,
        };
        let fields = (!fields.is_empty()).then(|| Fields::new(fields, &template)).transpose()?;
        Ok(PreparedFrames { template, fields })
    }

    /// Returns the flows.
    pub(super) fn flows(&self) -> &Flows {
        self.template.flows()
    }

    /// Returns a source of the frames, whose mix it is, that starts with the first one: the part of one of several
    /// generator cores.
    pub(super) fn source(&self, mix: &Mix, core: u32, cores: u32) -> SyntheticFrames<'_> {
        SyntheticFrames::of_flows(&self.template, self.fields.as_ref(), mix.cycle(), (core, cores))
    }
}
