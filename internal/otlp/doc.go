// Package otlp sends spans to a collector by OTLP over HTTP, as the standard
// variables OTEL_* say.
//
// It is a span exporter for OpenTelemetry's SDK, with the message written by hand:
// OpenTelemetry's own exporter is four times as large, because it brings protobuf
// and parts of gRPC (decision 0048). Begin reading at FromEnvironment.
package otlp
