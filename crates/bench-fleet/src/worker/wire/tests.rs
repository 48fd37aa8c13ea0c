use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Order::Job(job)) = postcard::from_bytes::<Order>(&bytes) {
            let _ = job.into_plan();
        }
        let _ = postcard::from_bytes::<Report>(&bytes);
    }
}
