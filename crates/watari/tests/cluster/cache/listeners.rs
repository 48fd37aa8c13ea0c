//! Listeners with rules of their own before one cache: a response that depends on the listener stays with its clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::script::Reply;
use super::{FRESH, Got, Scene, ask, purge};
use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls};
use crate::harness::site::{Authority, SITE};

/// The content of a response that depends on nothing.
const NONE: &str = "none";

/// GET / at this listener.
fn get(scene: &Scene, service: SocketAddr, taste: &Taste) -> Got {
    let source = if service.is_ipv6() { IpAddr::from(Ipv6Addr::LOCALHOST) } else { scene.cluster.clients.any() };
    ask(&mut Http::new(Tls::to_site(source, service, taste).unwrap()), "GET", "/", "")
}

/// The IPv4 listener requests no client certificates. This is the rule of the IPv6 listener.
fn set_rule(scene: &Scene, demand: &str) {
    let address = scene.cluster.service_v6;
    let listener = format!("[[agent.tls.listener]]\naddress = \"{address}\"\nclient_certificates = \"{demand}\"\n");
    let tls = format!("[agent.tls]\nclient_ca = \"site/clients.pem\"\n{listener}");
    scene.agent().reconfigure(|text| format!("{text}\n{tls}"));
}

/// An origin that gets the PROXY protocol can tell listeners apart.
#[test]
fn a_response_by_the_service_address_is_for_clients_of_that_address() {
    let scene = Scene::set(|asked| Reply::ok(FRESH, asked.server.map_or(NONE.to_owned(), |server| server.to_string())));
    set_rule(&scene, "optional");
    scene.agent().reconfigure(|text| text.replace("name = \"site\"\n", "name = \"site\"\nproxy_protocol = \"v2\"\n"));
    let services = [scene.cluster.service, scene.cluster.service_v6];
    for asked in [2, 4] {
        for is_hit in [false, true] {
            for service in services {
                let got = get(&scene, service, &Taste::default());
                assert_eq!((got.text(), got.is_hit()), (service.to_string(), is_hit));
            }
        }
        assert_eq!(scene.origin.count("/"), asked);
        purge(scene.agent(), &[&format!("https://{SITE}/")]);
    }
}

/// Other origins cannot: their responses are for the clients of all listeners.
#[test]
fn listeners_that_the_origin_cannot_tell_apart_share_a_response() {
    let scene = Scene::set(|asked| Reply::ok(FRESH, asked.field("client-cert").unwrap_or(NONE)));
    set_rule(&scene, "optional");
    for (service, is_hit) in [(scene.cluster.service, false), (scene.cluster.service_v6, true)] {
        let got = get(&scene, service, &Taste::default());
        assert_eq!((&*got.text(), got.is_hit()), (NONE, is_hit), "{service}");
    }
    assert_eq!(scene.origin.count("/"), 1);
}

/// Clients with a certificate neither get stored responses, nor fill the cache.
#[test]
fn a_response_to_a_client_with_a_certificate_is_for_no_other_client() {
    let identity = Authority::of_clients().issue_to_client("client.test");
    let certified = Taste { identity: Some(identity), ..Taste::default() };
    for demand in ["optional", "required"] {
        let scene = Scene::set(|asked| Reply::ok(FRESH, asked.field("client-cert").unwrap_or(NONE)));
        set_rule(&scene, demand);
        let [public, private] = [scene.cluster.service, scene.cluster.service_v6];
        for turn in 0..3 {
            let got = get(&scene, private, &certified);
            assert_eq!(got.status(), "watari; fwd=bypass; fwd-status=200");
            assert!(got.text().starts_with(':') && got.text().len() > 100, "{got:?}");
            let got = get(&scene, public, &Taste::default());
            assert_eq!((&*got.text(), got.is_hit()), (NONE, turn > 0), "{demand}");
        }
        assert_eq!((scene.origin.count("/"), scene.results("bypass")), (4, 3), "{demand}");
    }
}
