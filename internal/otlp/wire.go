package otlp

import (
	"encoding/binary"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The fields of opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest and
// of what is in it. Their numbers are stable.
const (
	requestResourceSpans = 1

	resourceSpansResource   = 1
	resourceSpansScopeSpans = 2
	resourceSpansSchema     = 3

	resourceAttributes = 1

	scopeSpansScope  = 1
	scopeSpansSpans  = 2
	scopeSpansSchema = 3

	scopeName    = 1
	scopeVersion = 2

	spanTraceID           = 1
	spanSpanID            = 2
	spanTraceState        = 3
	spanParentID          = 4
	spanName              = 5
	spanKind              = 6
	spanStart             = 7
	spanEnd               = 8
	spanAttributes        = 9
	spanDroppedAttributes = 10
	spanEvents            = 11
	spanDroppedEvents     = 12
	spanLinks             = 13
	spanDroppedLinks      = 14
	spanStatus            = 15
	spanFlags             = 16

	eventTime       = 1
	eventName       = 2
	eventAttributes = 3
	eventDropped    = 4

	linkTraceID    = 1
	linkSpanID     = 2
	linkTraceState = 3
	linkAttributes = 4
	linkDropped    = 5
	linkFlags      = 6

	statusMessage = 2
	statusCode    = 3

	keyValueKey   = 1
	keyValueValue = 2

	valueString = 1
	valueBool   = 2
	valueInt    = 3
	valueDouble = 4
	valueArray  = 5

	arrayValues = 1
)

// The flags of a span say, beside those of the W3C, whether its parent is known to be
// of another process.
const (
	flagHasIsRemote = 0x100
	flagIsRemote    = 0x200
)

// message is a message of protobuf that is being written.
type message []byte

const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func (m *message) tag(field, wire int) { m.raw(uint64(field)<<3 | uint64(wire)) } //nolint:gosec // constants
func (m *message) raw(v uint64)        { *m = binary.AppendUvarint(*m, v) }

func (m *message) varint(field int, v uint64) {
	if v != 0 {
		m.tag(field, wireVarint)
		m.raw(v)
	}
}

func (m *message) count(field, n int) { m.varint(field, uint64(max(n, 0))) } //nolint:gosec // not negative

func (m *message) fixed64(field int, v uint64) {
	m.tag(field, wireFixed64)
	*m = binary.LittleEndian.AppendUint64(*m, v)
}

func (m *message) fixed32(field int, v uint32) {
	m.tag(field, wireFixed32)
	*m = binary.LittleEndian.AppendUint32(*m, v)
}

func (m *message) bytes(field int, b []byte) {
	m.tag(field, wireBytes)
	m.raw(uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) text(field int, s string) {
	if s != "" {
		m.tag(field, wireBytes)
		m.raw(uint64(len(s)))
		*m = append(*m, s...)
	}
}

func (m *message) time(field int, t time.Time) { m.fixed64(field, uint64(max(t.UnixNano(), 0))) } //nolint:gosec // not negative

// encode writes the spans as a request. All are of one provider, and so of one
// resource; those of one scope stand together.
func encode(spans []sdk.ReadOnlySpan) []byte {
	var scopes []message
	at := map[string]int{}
	for _, s := range spans {
		scope := s.InstrumentationScope()
		i, known := at[scope.Name+"\x00"+scope.Version]
		if !known {
			i = len(scopes)
			at[scope.Name+"\x00"+scope.Version] = i
			var about, head message
			about.text(scopeName, scope.Name)
			about.text(scopeVersion, scope.Version)
			head.bytes(scopeSpansScope, about)
			head.text(scopeSpansSchema, scope.SchemaURL)
			scopes = append(scopes, head)
		}
		scopes[i].bytes(scopeSpansSpans, spanOf(s))
	}
	var resource, all, request message
	attributes(&resource, resourceAttributes, spans[0].Resource().Attributes())
	all.bytes(resourceSpansResource, resource)
	for _, scope := range scopes {
		all.bytes(resourceSpansScopeSpans, scope)
	}
	all.text(resourceSpansSchema, spans[0].Resource().SchemaURL())
	request.bytes(requestResourceSpans, all)
	return request
}

func spanOf(s sdk.ReadOnlySpan) (m message) {
	identity(&m, spanTraceID, spanSpanID, spanTraceState, s.SpanContext())
	if parent := s.Parent(); parent.SpanID().IsValid() {
		id := parent.SpanID()
		m.bytes(spanParentID, id[:])
	}
	m.text(spanName, s.Name())
	m.varint(spanKind, uint64(s.SpanKind())) //nolint:gosec // the numbers of OTLP are those of the interface
	m.time(spanStart, s.StartTime())
	m.time(spanEnd, s.EndTime())
	attributes(&m, spanAttributes, s.Attributes())
	m.count(spanDroppedAttributes, s.DroppedAttributes())
	for _, e := range s.Events() {
		var event message
		event.time(eventTime, e.Time)
		event.text(eventName, e.Name)
		attributes(&event, eventAttributes, e.Attributes)
		event.count(eventDropped, e.DroppedAttributeCount)
		m.bytes(spanEvents, event)
	}
	m.count(spanDroppedEvents, s.DroppedEvents())
	for _, l := range s.Links() {
		var link message
		identity(&link, linkTraceID, linkSpanID, linkTraceState, l.SpanContext)
		attributes(&link, linkAttributes, l.Attributes)
		link.count(linkDropped, l.DroppedAttributeCount)
		link.fixed32(linkFlags, flagsOf(l.SpanContext, l.SpanContext))
		m.bytes(spanLinks, link)
	}
	m.count(spanDroppedLinks, s.DroppedLinks())
	var status message
	status.text(statusMessage, s.Status().Description)
	status.varint(statusCode, statusOf(s))
	m.bytes(spanStatus, status)
	m.fixed32(spanFlags, flagsOf(s.SpanContext(), s.Parent()))
	return m
}

func identity(m *message, traceField, spanField, stateField int, of trace.SpanContext) {
	traceID, spanID := of.TraceID(), of.SpanID()
	m.bytes(traceField, traceID[:])
	m.bytes(spanField, spanID[:])
	m.text(stateField, of.TraceState().String())
}

func flagsOf(of, parent trace.SpanContext) uint32 {
	flags := uint32(of.TraceFlags()) | flagHasIsRemote
	if parent.IsRemote() {
		flags |= flagIsRemote
	}
	return flags
}

func attributes(m *message, field int, all []attribute.KeyValue) {
	for _, a := range all {
		var pair message
		pair.text(keyValueKey, string(a.Key))
		pair.bytes(keyValueValue, valueOf(a.Value))
		m.bytes(field, pair)
	}
}

// valueOf writes a value also where it is zero: it is the choice of a oneof.
func valueOf(v attribute.Value) (m message) {
	switch v.Type() {
	case attribute.BOOL:
		m.tag(valueBool, wireVarint)
		if v.AsBool() {
			m.raw(1)
		} else {
			m.raw(0)
		}
	case attribute.INT64:
		m.tag(valueInt, wireVarint)
		m.raw(uint64(v.AsInt64())) //nolint:gosec // as protobuf writes an int64
	case attribute.FLOAT64:
		m.fixed64(valueDouble, math.Float64bits(v.AsFloat64()))
	case attribute.STRINGSLICE:
		m.bytes(valueArray, arrayOf(v.AsStringSlice(), attribute.StringValue))
	case attribute.INT64SLICE:
		m.bytes(valueArray, arrayOf(v.AsInt64Slice(), attribute.Int64Value))
	case attribute.FLOAT64SLICE:
		m.bytes(valueArray, arrayOf(v.AsFloat64Slice(), attribute.Float64Value))
	case attribute.BOOLSLICE:
		m.bytes(valueArray, arrayOf(v.AsBoolSlice(), attribute.BoolValue))
	default:
		m.bytes(valueString, []byte(v.String()))
	}
	return m
}

func arrayOf[T any](all []T, value func(T) attribute.Value) (m message) {
	for _, one := range all {
		m.bytes(arrayValues, valueOf(value(one)))
	}
	return m
}
