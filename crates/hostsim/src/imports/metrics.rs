//! Metrics.

use super::memory::{read_text, write_u32, write_u64};
use super::{Cx, Outcome};

pub(super) fn proxy_define_metric(cx: &mut Cx<'_>, kind: u32, name: u32, name_size: u32, to: u32) -> Outcome {
    let name = read_text(cx, name, name_size)?;
    let host = cx.data_mut();
    let id = host.metric_ids.define(&mut host.world.borrow_mut().metrics, kind, name)?;
    write_u32(cx, to, id)
}

pub(super) fn proxy_increment_metric(cx: &mut Cx<'_>, metric: u32, by: i64) -> Outcome {
    let host = cx.data();
    Ok(host.metric_ids.increment(&mut host.world.borrow_mut().metrics, metric, by)?)
}

pub(super) fn proxy_record_metric(cx: &mut Cx<'_>, metric: u32, value: u64) -> Outcome {
    let host = cx.data();
    Ok(host.metric_ids.record(&mut host.world.borrow_mut().metrics, metric, value)?)
}

pub(super) fn proxy_get_metric(cx: &mut Cx<'_>, metric: u32, to: u32) -> Outcome {
    let host = cx.data();
    let value = host.metric_ids.value(&mut host.world.borrow_mut().metrics, metric)?;
    write_u64(cx, to, value)
}
