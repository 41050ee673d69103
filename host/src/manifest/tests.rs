//! What a manifest may say and what not.

use super::*;

const MINIMAL: &str = r#"
    spin_manifest_version = 2
    [application]
    name = "shop"
    [[trigger.http]]
    route = "/..."
    component = "shop"
    [component.shop]
    source = "shop.wasm"
"#;

/// What is refused when these lines are added to the component.
fn refusal(component: &str) -> String {
    format!(
        "{:#}",
        Manifest::parse(&format!("{MINIMAL}{component}")).unwrap_err()
    )
}

#[test]
fn a_full_manifest_is_read() {
    let manifest = Manifest::parse(
        r#"
        spin_manifest_version = 2
        [application]
        name = "shop"
        version = "1.0.0"
        authors = ["A"]
        description = "…"
        [application.trigger.http]
        base = "/"
        [application.tool.x]
        y = 1
        [variables]
        key = { required = true, secret = true, description = "…" }
        host = { default = "localhost" }
        [[trigger.http]]
        id = "one"
        route = "/one"
        component = "shop"
        executor = { type = "http" }
        dependencies = {}
        [[trigger.http]]
        route = "/two/..."
        component = "shop"
        [component.shop]
        source = "target/shop.wasm"
        description = "…"
        allowed_outbound_hosts = ["https://{{ host }}"]
        key_value_stores = ["default"]
        sqlite_databases = ["default"]
        files = []
        environment = { A = "b" }
        [component.shop.variables]
        key = "{{ key }}"
        [component.shop.build]
        command = "make"
        watch = ["src"]
        [component.shop.tool.x]
        y = 1
        "#,
    )
    .unwrap();
    assert_eq!(manifest.name, "shop");
    assert_eq!(manifest.component_id, "shop");
    assert_eq!(manifest.routes.len(), 2);
    assert!(manifest.variables["key"].required && manifest.variables["key"].secret);
    let component = manifest.component;
    assert_eq!(component.source, "target/shop.wasm");
    assert_eq!(component.variables["key"], "{{ key }}");
    assert_eq!(component.environment["A"], "b");
    assert_eq!(component.key_value_stores, ["default"]);
    assert_eq!(component.sqlite_databases, ["default"]);
}

#[test]
fn what_a_component_cannot_have_here_is_named() {
    for (line, name) in [
        ("files = [\"assets/*\"]", "files"),
        ("ai_models = [\"llama2-chat\"]", "ai_models"),
        (
            "allowed_http_hosts = [\"example.com\"]",
            "allowed_http_hosts",
        ),
        (
            "dependencies_inherit_configuration = true",
            "dependencies_inherit_configuration",
        ),
        ("dependencies = { \"a:b\" = \"1.0\" }", "dependencies"),
        ("typo = 1", "typo"),
    ] {
        let error = refusal(line);
        assert!(error.contains(&format!("`{name}`")), "{error}");
        assert!(error.contains("component.shop"), "{error}");
    }
}

#[test]
fn other_triggers_components_and_sources_are_refused() {
    for (from, to, expected) in [
        (
            "[component.shop]",
            "[[trigger.redis]]\nchannel = \"x\"\n[component.shop]",
            "redis",
        ),
        (
            "[component.shop]",
            "[component.b]\nsource = \"b\"\n[component.shop]",
            "2 components",
        ),
        (
            "\"shop.wasm\"",
            "{ url = \"https://x\", digest = \"y\" }",
            "registry",
        ),
        ("component = \"shop\"", "component = \"other\"", "other"),
        (
            "component = \"shop\"",
            "component = { source = \"x\" }",
            "written into its trigger",
        ),
        (
            "component = \"shop\"",
            "static_response = { body = \"x\" }",
            "static_response",
        ),
        ("\"/...\"", "{ private = true }", "private"),
        ("route =", "executor = { type = \"wagi\" }\nroute =", "wagi"),
        (
            "route =",
            "dependencies.middleware = [{ component = \"shop\" }]\nroute =",
            "`dependencies`",
        ),
        ("version = 2", "version = 1", "only 2"),
        (
            "[application]",
            "[application.trigger.http]\nbase = \"/x\"\n[application]",
            "base",
        ),
        ("[application]", "typo = 1\n[application]", "typo"),
    ] {
        let error = format!(
            "{:#}",
            Manifest::parse(&MINIMAL.replace(from, to)).unwrap_err()
        );
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn an_unknown_field_of_a_variable_is_refused() {
    let error = refusal("[variables]\na = { default = \"x\", secrt = true }");
    assert!(error.contains("secrt"), "{error}");
}
