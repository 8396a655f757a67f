package metrics

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// accepted is the format that a request asks for: OpenMetrics where it is named and
// wanted at least as much as text.
func accepted(header http.Header) Format {
	open, plain := 0.0, 0.0
	for part := range strings.SplitSeq(strings.Join(header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		switch kind {
		case "application/openmetrics-text":
			open = max(open, quality(params))
		case "text/plain":
			plain = max(plain, quality(params))
		}
	}
	if open > 0 && open >= plain {
		return OpenMetrics
	}
	return Prometheus
}

// quality is the weight of a media type: 0 means not acceptable.
func quality(params map[string]string) float64 {
	given, named := params["q"]
	if !named {
		return 1
	}
	q, err := strconv.ParseFloat(given, 64)
	if err != nil || !(q >= 0 && q <= 1) { // NaN is not
		return 0
	}
	return q
}
