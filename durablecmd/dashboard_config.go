package durablecmd

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
)

const (
	varDashboardAddr  = "DURABLE_DASHBOARD_ADDR"
	varToken          = "DURABLE_DASHBOARD_TOKEN"                                       //nolint:gosec // a name
	varViewerToken    = "DURABLE_DASHBOARD_VIEWER_TOKEN"                                //nolint:gosec // a name
	varUserHeader     = "DURABLE_DASHBOARD_USER_HEADER"                                 //
	varGroupsHeader   = "DURABLE_DASHBOARD_GROUPS_HEADER"                               //
	varOperatorGroups = "DURABLE_DASHBOARD_OPERATOR_GROUPS"                             //
	varProxySecret    = "DURABLE_DASHBOARD_PROXY_SECRET"                                //nolint:gosec // a name
	varTLSCert        = "DURABLE_DASHBOARD_TLS_CERT"                                    //
	varTLSKey         = "DURABLE_DASHBOARD_TLS_KEY"                                     //
	proxyHeader       = "X-Durable-Proxy"                                               // with the proxy's secret
	dashboardAlone    = "127.0.0.1:8081"                                                // of the command, unless it is said
	inFile            = "_FILE"                                                         // a variable that names a file with the value
	leastSecret       = 16                                                              // bytes
	secretConstraint  = "at least 16 characters, such as `openssl rand -hex 16` writes" //nolint:gosec // a sentence
)

// secretVariables are those whose values are shown nowhere.
func secretVariables() []string {
	return []string{varToken, varViewerToken, varProxySecret, varEventsSecret}
}

// readSecrets reads the secrets that are in files, and notes in wants what is wrong
// with one.
func (c *Config) readSecrets(wants map[string]string) {
	for _, secret := range []struct {
		name  string
		value *string
		path  string
	}{
		{name: varToken, value: &c.DashboardToken, path: c.DashboardTokenFile},
		{name: varViewerToken, value: &c.DashboardViewer, path: c.DashboardViewerFile},
		{name: varProxySecret, value: &c.DashboardProxySecret, path: c.DashboardProxySecretIn},
		{name: varEventsSecret, value: &c.EventsSecret, path: c.EventsSecretFile},
	} {
		if secret.path == "" {
			continue
		}
		if *secret.value != "" {
			wants[secret.name+inFile] = "want it, or " + secret.name + ", and not both"
			continue
		}
		text, err := os.ReadFile(secret.path)
		if err != nil {
			wants[secret.name+inFile] = "want a file that can be read"
			continue
		}
		*secret.value = strings.TrimSpace(string(text))
		if len(*secret.value) < leastSecret {
			wants[secret.name+inFile] = "want a file with " + secretConstraint
		}
	}
}

// unlocked reports whether the dashboard has no authentication of its own.
func (c *Config) unlocked() bool {
	return c.DashboardToken == "" && c.DashboardViewer == "" && c.DashboardUserHeader == ""
}

// auth decides who may use the dashboard.
func (c *Config) auth() access.Auth {
	switch {
	case c.DashboardUserHeader != "":
		return access.Proxy(access.ProxyConfig{User: c.DashboardUserHeader, Groups: c.DashboardGroupsHeader, Operators: list(c.DashboardOperators),
			OperatorGroups: list(c.DashboardOperatorsOf), SecretHeader: proxyHeader, Secret: c.DashboardProxySecret})
	case c.unlocked():
		return access.Loopback()
	default:
		return access.Tokens(c.DashboardToken, c.DashboardViewer)
	}
}

// list is what commas separate.
func list(text string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// ofThisMachine reports whether only this machine reaches an address.
func ofThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}

// optional is a variable that may be missing, and has nothing to hide.
func optional(name, unit, constraint string, value func(c Config) string) variable {
	return variable{name: name, standard: "none", unit: unit, constraint: constraint, show: func(c Config) string {
		if value(c) == "" {
			return "none"
		}
		return value(c)
	}}
}

// names is a variable that may be missing, with one or more names. A list of none, as of
// variables that are not set, would lift the restriction that it was to be.
func names(name, constraint string, value func(c Config) string, fits func(name string) bool) variable {
	v := optional(name, "names", constraint, value)
	v.valid = func(c Config) bool {
		given := list(value(c))
		return value(c) == "" || len(given) > 0 && !slices.ContainsFunc(given, func(one string) bool { return !fits(one) })
	}
	return v
}

var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// isHost reports whether a request can name a host so, its port aside.
func isHost(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || hostName.MatchString(name)
}

// secret is a variable whose value is shown nowhere, and may be in a file.
func secret(name string, value, file func(c Config) string) []variable {
	return []variable{
		{name: name, standard: "none", unit: "secret", constraint: secretConstraint,
			show: func(c Config) string {
				if value(c) == "" {
					return "none"
				}
				return "(set)"
			},
			valid: func(c Config) bool { return value(c) == "" || len(value(c)) >= leastSecret }},
		optional(name+inFile, "path", "a file with the value of "+name, file),
	}
}

func dashboardVariables() []variable {
	user := optional(varUserHeader, "header", "the name of the header in which a proxy says who asks; with "+varProxySecret+", and without tokens",
		func(c Config) string { return c.DashboardUserHeader })
	user.valid = func(c Config) bool {
		return c.DashboardUserHeader == "" || headerName.MatchString(c.DashboardUserHeader) && c.DashboardProxySecret != "" && c.DashboardToken == "" && c.DashboardViewer == ""
	}
	groups := optional(varGroupsHeader, "header", "the name of the header with the user's groups, separated by commas; with "+varUserHeader+" and "+varOperatorGroups,
		func(c Config) string { return c.DashboardGroupsHeader })
	groups.valid = func(c Config) bool {
		return c.DashboardGroupsHeader == "" || headerName.MatchString(c.DashboardGroupsHeader) && c.DashboardUserHeader != "" && c.DashboardOperatorsOf != ""
	}
	operators := names("DURABLE_DASHBOARD_OPERATORS", "users separated by commas who may change things; others may read; with "+varUserHeader,
		func(c Config) string { return c.DashboardOperators }, func(string) bool { return true })
	named := operators.valid
	operators.valid = func(c Config) bool { return named(c) && (c.DashboardOperators == "" || c.DashboardUserHeader != "") }
	operatorGroups := names(varOperatorGroups, "groups separated by commas whose members may change things, too; with "+varGroupsHeader,
		func(c Config) string { return c.DashboardOperatorsOf }, func(string) bool { return true })
	namedGroups := operatorGroups.valid
	operatorGroups.valid = func(c Config) bool {
		return namedGroups(c) && (c.DashboardOperatorsOf == "" || c.DashboardGroupsHeader != "")
	}
	cert := optional(varTLSCert, "path", "a file with the certificate in PEM, and "+varTLSKey+" with its key", func(c Config) string { return c.DashboardCert })
	cert.valid = func(c Config) bool {
		if c.DashboardCert == "" && c.DashboardKey == "" {
			return true
		}
		_, err := tls.LoadX509KeyPair(c.DashboardCert, c.DashboardKey)
		return err == nil
	}
	viewer := secret(varViewerToken, func(c Config) string { return c.DashboardViewer }, func(c Config) string { return c.DashboardViewerFile })
	viewer[0].constraint += ", and not the operators' token"
	viewer[0].valid = func(c Config) bool {
		return c.DashboardViewer == "" || len(c.DashboardViewer) >= leastSecret && c.DashboardViewer != c.DashboardToken
	}
	return slices.Concat(
		[]variable{dashboardAddress()},
		secret(varToken, func(c Config) string { return c.DashboardToken }, func(c Config) string { return c.DashboardTokenFile }),
		viewer,
		[]variable{
			names("DURABLE_DASHBOARD_HOSTS", "host names separated by commas, without ports", func(c Config) string { return c.DashboardHosts }, isHost),
			user,
			groups,
			operators,
			operatorGroups,
		},
		secret(varProxySecret, func(c Config) string { return c.DashboardProxySecret }, func(c Config) string { return c.DashboardProxySecretIn }),
		[]variable{
			redacted(),
			role("DURABLE_DASHBOARD_ARGS", access.Operator, "sees args, results, checkpoints and values of steps and inputs", func(c Config) string { return c.DashboardArgs }),
			role("DURABLE_DASHBOARD_TEXTS", access.Viewer, "sees errors, stacks, log lines and notes", func(c Config) string { return c.DashboardTexts }),
			cert,
			optional(varTLSKey, "path", "a file with the key of the certificate in PEM", func(c Config) string { return c.DashboardKey }),
		})
}

// role is a variable with the least role that may do something.
func role(name string, standard access.Role, may string, value func(c Config) string) variable {
	return variable{name: name, standard: standard.String(), unit: "role", constraint: "viewer or operator: the least role that " + may, show: value,
		valid: func(c Config) bool {
			return value(c) == access.Viewer.String() || value(c) == access.Operator.String()
		}}
}

// sees are the least roles that see args, and texts.
func (c Config) sees() (args, texts access.Role) {
	args, texts = access.Operator, access.Viewer
	if c.DashboardArgs == access.Viewer.String() {
		args = access.Viewer
	}
	if c.DashboardTexts == access.Operator.String() {
		texts = access.Operator
	}
	return args, texts
}

func redacted() variable {
	v := optional("DURABLE_REDACT", "paths", "paths into args, results, checkpoints, steps and inputs separated by commas, which no one is shown: card.number,*.token,**.password",
		func(c Config) string { return c.Redact })
	v.valid = func(c Config) bool {
		paths := list(c.Redact)
		_, err := operate.NewRedaction(paths...)
		return err == nil && (c.Redact == "" || len(paths) > 0)
	}
	return v
}

func dashboardAddress() variable {
	v := optional(varDashboardAddr, "host:port", "host:port; off: none", func(c Config) string { return c.DashboardAddr })
	v.standard = "none; of the command dashboard " + dashboardAlone
	v.valid = func(c Config) bool {
		return c.DashboardAddr == "" || c.DashboardAddr == "off" || isAddr(c.DashboardAddr) && (ofThisMachine(c.DashboardAddr) || !c.unlocked())
	}
	v.why = func(c Config) string {
		if !isAddr(c.DashboardAddr) {
			return "want host:port; off: none"
		}
		return "others than this machine would reach it, and nothing says who may: set " + varToken + " (or " + varToken + inFile +
			"), or " + varUserHeader + " with " + varProxySecret + " behind a proxy that authenticates, or listen on 127.0.0.1"
	}
	return v
}
