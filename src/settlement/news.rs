//! What channels report by themselves: late, repeated, out of order, and contradicting what they said before.
//! None of it moves anything backwards: a call is settled once, and money that comes after it failed goes back.

use http::HeaderMap;

use super::{Settler, channel_calls};
use crate::channel::News;
use crate::domain::{Code, Problem};
use crate::runtime;

impl Settler {
    /// Takes a webhook of the channel of that name; whether it changed anything.
    ///
    /// # Errors
    ///
    /// `signature_invalid`, `body_invalid`, `not_found` for another channel, and 503s, after which the
    /// channel sends the event again: `channel_unavailable` where it is about a payment that is not known, or
    /// is of another amount, and those of the database.
    pub async fn hear(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<bool, Problem> {
        let configured = self.terms.is_some_and(|terms| terms.name == name);
        let Some(channel) = self.channel.as_ref().filter(|_| configured) else {
            let detail = format!("there is no channel {name}");
            return Err(Problem::new(Code::NotFound, detail));
        };
        let event = channel.event(headers, body, runtime::now())?;
        if channel_calls::is_known_event(&self.database, name, &event.id).await? {
            return Ok(false);
        }
        let changed = match event.news {
            Some(news) => self.apply(name, news).await?,
            None => false,
        };
        // Last: an event that gets lost before this comes again, and finds its work done.
        channel_calls::keep_event(&self.database, name, &event.id, runtime::now()).await?;
        Ok(changed)
    }

    async fn apply(&self, channel: &str, news: News) -> Result<bool, Problem> {
        let call = channel_calls::of_number(&self.database, channel, news.kind, &news.number);
        let call = call.await?.ok_or_else(|| {
            let detail = format!("nothing is known of {}: send the event again", news.number);
            Problem::new(Code::ChannelUnavailable, detail)
        })?;
        let settlement = news.of(&call).map_err(|reason| Problem {
            cause: Some(format!("{}: {reason}", call.number)),
            ..Problem::new(Code::ChannelUnavailable, reason)
        })?;
        match settlement {
            Some(settlement) => {
                let ending = self.settle(&call, settlement).await?;
                Ok(ending != super::Ending::Before)
            }
            None => Ok(false),
        }
    }
}
