//! The HTTP contract: routes, and how requests and answers look.

mod body;
mod cloud_event;
mod extract;
mod headers;
mod intent;
mod respond;
mod routes;
mod strict_json;
mod trace;

use std::sync::{Arc, OnceLock};

use axum::response::Response;
use axum::routing::{get, patch, post, put};
use axum::{Router, middleware};
use spin_sdk::http::Request;
use tower_service::Service;

use crate::config::Config;
use crate::delivery::Dispatcher;
use crate::domain::{Code, Problem};
use crate::idempotency::Idempotency;
use crate::store::Database;

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
    Router::new()
        .route("/v1/tokens", post(routes::tokens::issue))
        .route(
            "/v1/orders",
            get(routes::orders::list).post(routes::orders::create),
        )
        .route("/v1/orders/{order_no}", get(routes::orders::show))
        .route(
            "/v1/orders/{order_no}/pay",
            post(routes::payments::pay_order),
        )
        .route("/v1/orders/{order_no}/ship", post(routes::orders::ship))
        .route(
            "/v1/orders/{order_no}/complete",
            post(routes::orders::complete),
        )
        .route("/v1/orders/{order_no}/cancel", post(routes::orders::cancel))
        .route(
            "/v1/orders/{order_no}/refunds",
            get(routes::refunds::of_order).post(routes::refunds::refund),
        )
        .route(
            "/v1/orders/{order_no}/payments",
            get(routes::payments::of_order),
        )
        .route("/v1/orders/{order_no}/events", get(routes::orders::events))
        .route("/v1/pay", post(routes::payments::pay))
        .route("/v1/payments", get(routes::payments::find))
        .route("/v1/payments/{payment_id}", get(routes::payments::show))
        .route("/v1/accounts/{user_id}", get(routes::accounts::show))
        .route(
            "/v1/accounts/{user_id}/deposits",
            post(routes::accounts::deposit),
        )
        .route("/v1/coupons/{activity_id}", put(routes::coupons::limit))
        .route(
            "/v1/coupons/{activity_id}/grants",
            post(routes::coupons::grant),
        )
        .route(
            "/v1/users/{user_id}/profile",
            patch(routes::profiles::update),
        )
        .route("/v1/messages", post(routes::messages::send))
        .route("/v1/events", post(routes::events::receive))
        .route("/v1/webhooks/{channel}", post(routes::webhooks::hear))
        .route("/admin/reconcile", post(routes::admin::reconcile))
        .route("/admin/dispatch", post(routes::admin::dispatch))
        .route("/admin/sweep", post(routes::admin::sweep))
        .route("/admin/stats", get(routes::admin::stats))
        .route("/admin/ledger", get(routes::admin::ledger))
        .route("/healthz", get(routes::service::health))
        .route("/readyz", get(routes::service::ready))
        .route("/problems/{code}", get(routes::service::problem_page))
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
