package otlp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/otlp"
)

// of reads variables from a table.
func of(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestNothingIsExportedUnlessAVariableSaysSo(t *testing.T) {
	t.Parallel()
	for _, variables := range []map[string]string{
		{},
		{"OTEL_SERVICE_NAME": "shop", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"},
		{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"},
		{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"},
	} {
		settings, err := otlp.FromEnvironment(of(variables))
		require.NoError(t, err)
		require.Nil(t, settings, variables)
	}
	for _, variables := range []map[string]string{
		{"OTEL_TRACES_EXPORTER": "otlp"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:4318/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces", "OTEL_EXPORTER_OTLP_TIMEOUT": "500"},
	} {
		settings, err := otlp.FromEnvironment(of(variables))
		require.NoError(t, err)
		require.NotNil(t, settings, variables)
	}
}

// A wrong value is named by its variable and not repeated: it may hold a secret.
func TestWrongVariablesAreNamed(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER":                         "canary",
		"OTEL_EXPORTER_OTLP_PROTOCOL":                  "grpc",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL":           "canary",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":           "canary:4318",
		"OTEL_EXPORTER_OTLP_HEADERS":                   "canary",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":            "a=%0d%0acanary",
		"OTEL_EXPORTER_OTLP_TIMEOUT":                   "canary",
		"OTEL_EXPORTER_OTLP_COMPRESSION":               "canary",
		"OTEL_EXPORTER_OTLP_CERTIFICATE":               "/canary",
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": "/canary",
	} {
		variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", name: value}
		settings, err := otlp.FromEnvironment(of(variables))
		require.Nil(t, settings)
		require.ErrorContains(t, err, name+": want ")
		require.NotContains(t, err.Error(), "canary")
	}
}
