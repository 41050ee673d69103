//! The HTTP contract: routes, and how requests and answers look.

mod body;
mod cloud_event;
mod extract;
mod headers;
mod intent;
mod openapi;
mod respond;
mod routes;
mod strict_json;
mod trace;

use std::sync::{Arc, OnceLock};

use axum::response::Response;
use axum::routing::{MethodRouter, get, patch, post, put};
use axum::{Router, middleware};
use spin_sdk::http::Request;
use tower_service::Service;

use crate::config::Config;
use crate::delivery::Dispatcher;
use crate::domain::{Code, Problem};
use crate::idempotency::Idempotency;
use crate::store::Database;

#[cfg(any(test, fuzzing))]
pub use {
    cloud_event::fuzz::cloud_event, extract::fuzz::header_field, routes::events::fuzz::json_body,
    routes::orders::fuzz::cursor,
};

/// What the handlers share: caches only, nothing that an outcome depends on.
pub struct App {
    config: Config,
    idempotency: Idempotency,
    delivery: Arc<Dispatcher>,
    /// For what is no merchant's business, so that it never waits in front of theirs.
    maintenance: Arc<Database>,
}

/// The instance's router. While no route could work, the configuration is read again for each request.
static ROUTER: OnceLock<Router> = OnceLock::new();

/// Answers a request.
pub async fn serve(request: Request) -> Response {
    let router = match ROUTER.get() {
        Some(router) => router.clone(),
        None => {
            let config = Config::load().await;
            let complete = config.check_merchants().is_ok();
            let router = router(config);
            if complete {
                ROUTER.get_or_init(|| router).clone()
            } else {
                router
            }
        }
    };
    let Ok(response) = { router }.call(request).await;
    response
}

fn router(config: Config) -> Router {
    let idempotency = Idempotency::new(&config);
    let maintenance = Arc::new(Database::default());
    let delivery = Arc::new(Dispatcher::new(&config, Arc::clone(&maintenance)));
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| {
            router.route(path, methods)
        })
        .fallback(async || Problem::new(Code::NotFound, "no route has this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(
                Code::MethodNotAllowed,
                "this path does not take this method",
            )
        })
        .layer(middleware::from_fn(trace::log))
        .with_state(Arc::new(App {
            config,
            idempotency,
            delivery,
            maintenance,
        }))
}

/// Every path and what answers there. `openapi.json` documents the same.
fn routes() -> [(&'static str, MethodRouter<Arc<App>>); 30] {
    use routes::*;
    [
        ("/v1/tokens", post(tokens::issue)),
        ("/v1/orders", get(orders::list).post(orders::create)),
        ("/v1/orders/{order_no}", get(orders::show)),
        ("/v1/orders/{order_no}/pay", post(payments::pay_order)),
        ("/v1/orders/{order_no}/ship", post(orders::ship)),
        ("/v1/orders/{order_no}/complete", post(orders::complete)),
        ("/v1/orders/{order_no}/cancel", post(orders::cancel)),
        (
            "/v1/orders/{order_no}/refunds",
            get(refunds::of_order).post(refunds::refund),
        ),
        ("/v1/orders/{order_no}/payments", get(payments::of_order)),
        ("/v1/orders/{order_no}/events", get(orders::events)),
        ("/v1/pay", post(payments::pay)),
        ("/v1/payments", get(payments::find)),
        ("/v1/payments/{payment_id}", get(payments::show)),
        ("/v1/accounts/{user_id}", get(accounts::show)),
        ("/v1/accounts/{user_id}/deposits", post(accounts::deposit)),
        ("/v1/coupons/{activity_id}", put(coupons::limit)),
        ("/v1/coupons/{activity_id}/grants", post(coupons::grant)),
        ("/v1/users/{user_id}/profile", patch(profiles::update)),
        ("/v1/messages", post(messages::send)),
        ("/v1/events", post(events::receive)),
        ("/v1/webhooks/{channel}", post(webhooks::hear)),
        ("/admin/reconcile", post(admin::reconcile)),
        ("/admin/dispatch", post(admin::dispatch)),
        ("/admin/sweep", post(admin::sweep)),
        ("/admin/stats", get(admin::stats)),
        ("/admin/ledger", get(admin::ledger)),
        ("/healthz", get(service::health)),
        ("/readyz", get(service::ready)),
        ("/openapi.json", get(openapi::document)),
        ("/problems/{code}", get(service::problem_page)),
    ]
}
