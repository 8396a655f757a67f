package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Settings say where spans go. FromEnvironment makes them.
type Settings struct {
	url     string
	headers http.Header
	timeout time.Duration
	gzip    bool
	tls     *tls.Config
	roots   *ratio // see rootsOf
}

// The standard variables. Each that begins with OTEL_EXPORTER_OTLP_ has a form for
// traces alone, which counts for more.
const (
	varDisabled = "OTEL_SDK_DISABLED"
	varExporter = "OTEL_TRACES_EXPORTER"
	prefixAll   = "OTEL_EXPORTER_OTLP_"
	prefixTrace = "OTEL_EXPORTER_OTLP_TRACES_"
)

const (
	standardEndpoint = "http://localhost:4318"
	standardTimeout  = 10 * time.Second
	tracesPath       = "v1/traces"
)

// FromEnvironment reads the variables. Nil without an error means that nothing is to
// be exported, because no variable asks for it. An error names the variable
// and never its value, which may be a secret.
func FromEnvironment(get func(name string) string) (*Settings, error) {
	exporter := strings.TrimSpace(get(varExporter))
	general, own := get(prefixAll+"ENDPOINT"), get(prefixTrace+"ENDPOINT")
	switch {
	case strings.EqualFold(strings.TrimSpace(get(varDisabled)), "true"), exporter == "none":
		return nil, nil //nolint:nilnil // the usual case, and no error
	case exporter == "" && general == "" && own == "":
		return nil, nil //nolint:nilnil // likewise
	case exporter != "" && exporter != "otlp":
		return nil, errors.New(varExporter + ": want otlp or none")
	}
	either := func(name string) (value, from string) {
		if value = get(prefixTrace + name); value != "" {
			return value, prefixTrace + name
		}
		return get(prefixAll + name), prefixAll + name
	}
	if protocol, from := either("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("%s: want http/protobuf, which collectors take at port 4318", from)
	}
	s := &Settings{timeout: standardTimeout, roots: rootsOf(get)}
	var faults [5]error
	s.url, faults[0] = endpoint(general, own)
	s.headers, faults[1] = headers(either("HEADERS"))
	s.timeout, faults[2] = timeout(either("TIMEOUT"))
	s.gzip, faults[3] = compression(either("COMPRESSION"))
	s.tls, faults[4] = certificates(either)
	if err := errors.Join(faults[:]...); err != nil {
		return nil, err
	}
	return s, nil
}

// endpoint is the URL of a variable for traces as it is, and that of the general one
// with the path of traces.
func endpoint(general, own string) (string, error) {
	text, from := own, prefixTrace+"ENDPOINT"
	if own == "" {
		if general == "" {
			general = standardEndpoint
		}
		text, from = strings.TrimSuffix(general, "/")+"/"+tracesPath, prefixAll+"ENDPOINT"
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s: want a URL such as %s", from, standardEndpoint)
	}
	return u.String(), nil
}

// headers reads name=value,name=value, with values as in URLs.
func headers(text, from string) (http.Header, error) {
	all := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		name = strings.TrimSpace(name)
		if !found || err != nil || name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("%s: want name=value, separated by commas", from)
		}
		all.Set(name, value)
	}
	return all, nil
}

func timeout(text, from string) (time.Duration, error) {
	if text == "" {
		return standardTimeout, nil
	}
	ms, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || ms < 1 || ms > int(time.Hour/time.Millisecond) {
		return 0, fmt.Errorf("%s: want milliseconds, 1 to 3600000", from)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func compression(text, from string) (gzip bool, err error) {
	switch text {
	case "", "none":
		return false, nil
	case "gzip":
		return true, nil
	default:
		return false, fmt.Errorf("%s: want gzip or none", from)
	}
}

// certificates reads the files that the variables name; nil: the system's.
func certificates(either func(name string) (value, from string)) (*tls.Config, error) {
	authority, fromAuthority := either("CERTIFICATE")
	cert, fromCert := either("CLIENT_CERTIFICATE")
	key, _ := either("CLIENT_KEY")
	if authority == "" && cert == "" && key == "" {
		return nil, nil //nolint:nilnil // the usual case
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		text, err := os.ReadFile(authority)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: want a file of certificates in PEM", fromAuthority)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: want a file with a certificate, and its key in %sCLIENT_KEY", fromCert, prefixAll)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
