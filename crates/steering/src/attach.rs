//! Attaches the program to an interface, over rtnetlink: a filter of tc(8) at the ingress.
//!
//! The kernel keeps the filter when the process ends or is killed. So packets of connections of other dispatchers are
//! passed on without the process, too.

use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_core::{DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use rtnetlink::{Error, Handle};

/// `TC_H_CLSACT`, and its ingress.
const CLSACT: TcHandle = TcHandle { major: 0xffff, minor: 0xfff1 };
const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: 0xfff2 };
/// The filter's place among others, and its number there.
const PRIORITY: u32 = 0x5741;
const HANDLE: TcHandle = TcHandle { major: 0, minor: 1 };
/// `ETH_P_ALL`
const ALL_PROTOCOLS: u16 = 3;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// `TCA_BPF_FLAG_ACT_DIRECT`: what the program returns is the verdict.
const DIRECT: u32 = 1;

/// Attaches the program with this descriptor, in place of an earlier one.
pub(crate) async fn attach(handle: &Handle, interface: u32, program: i32) -> Result<(), Error> {
    let mut queue = message(interface);
    (queue.header.handle, queue.header.parent) = (TcHandle { major: 0xffff, minor: 0 }, CLSACT);
    queue.attributes.push(TcAttribute::Kind("clsact".into()));
    request(handle, RouteNetlinkMessage::NewQueueDiscipline(queue), NLM_F_CREATE | NLM_F_REPLACE).await?;
    let mut filter = filter(interface);
    filter.attributes.push(TcAttribute::Options(vec![
        TcOption::Other(DefaultNla::new(TCA_BPF_FD, program.to_ne_bytes().to_vec())),
        TcOption::Other(DefaultNla::new(TCA_BPF_NAME, b"watari\0".to_vec())),
        TcOption::Other(DefaultNla::new(TCA_BPF_FLAGS, DIRECT.to_ne_bytes().to_vec())),
    ]));
    request(handle, RouteNetlinkMessage::NewTrafficFilter(filter), NLM_F_CREATE | NLM_F_REPLACE).await
}

/// Removes the program from the interface.
pub(crate) async fn detach(handle: &Handle, interface: u32) -> Result<(), Error> {
    request(handle, RouteNetlinkMessage::DelTrafficFilter(filter(interface)), 0).await
}

fn filter(interface: u32) -> TcMessage {
    let mut filter = message(interface);
    (filter.header.handle, filter.header.parent) = (HANDLE, INGRESS);
    filter.header.info = PRIORITY << 16 | u32::from(ALL_PROTOCOLS.to_be());
    filter.attributes.push(TcAttribute::Kind("bpf".into()));
    filter
}

fn message(interface: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = interface.cast_signed();
    message
}

async fn request(handle: &Handle, message: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
    use futures_util::StreamExt;

    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut answers = handle.clone().request(request)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(refused) = answer.payload {
            return Err(Error::NetlinkError(refused));
        }
    }
    Ok(())
}
