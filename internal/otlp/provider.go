package otlp

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Service is what a program says of itself, unless OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES say otherwise.
type Service struct {
	Name, Version, Instance string
}

// Provider makes a provider whose spans leave by an exporter with the settings, in
// batches: ending a span never waits, and spans beyond those that may wait are
// dropped. OTEL_BSP_* bounds the batches and OTEL_TRACES_SAMPLER chooses among the
// traces. Its goroutine ends with its Shutdown.
func Provider(ctx context.Context, settings *Settings, service Service, logger *slog.Logger) (*TracerProvider, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", service.Name), attribute.String("service.version", service.Version),
		attribute.String("service.instance.id", service.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	made := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithBatcher(New(settings, logger)))
	return &TracerProvider{TracerProvider: made, roots: settings.roots}, nil
}
