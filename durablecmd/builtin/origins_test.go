package builtin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd/builtin"
)

func TestOriginsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"https://api.example.com":            "https://api.example.com:443/",
		"http://api.example.com/":            "http://api.example.com:80/",
		"https://api.example.com:443/hooks":  "https://api.example.com:443/hooks",
		"http://10.0.0.7:8080, http://w:1/A": "http://10.0.0.7:8080/,http://w:1/A",
		"http://[2001:db8:0::1]:80":          "http://[2001:db8::1]:80/",
		"https://xn--mnchen-3ya.example/a-b": "https://xn--mnchen-3ya.example:443/a-b",
		"http://worker_1:80/a/":              "http://worker_1:80/a/",
	} {
		o, err := builtin.ParseOrigins(text)
		require.NoError(t, err, text)
		require.Equal(t, want, o.String())
		again, err := builtin.ParseOrigins(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
	}
	for _, text := range []string{
		"api.example.com", "//api.example.com", "https:/api.example.com", "https:api.example.com", "https://", "https:///hooks", "ftp://h", "file:///etc",
		"HTTPS://h", "https://API.example.com", "https://münchen.example", "https://\u212Aelvin.example", "https://u@h", "https://u:p@h", "https://h@evil", "https://h?x=1", "https://h#x",
		"https://h/%2e%2e", "https://h/a/../b", "https://h/a/./b", "https://h/a//b", "https://h/..;/a", `https://h\evil`, "https://h:0", "https://h:65536",
		"https://h:", "https://h:http", "https://h:080", "https://h:+80", "https://h.", "https://.h", "https://h..i", "https://-h", "https://h-", "https://*.example.com", "https://*",
		"https://2130706433", "https://0x7f.1", "https://127.1", "https://0177.0.0.1", "https://127.0.0.1.", "https://1.2.3.4.5", "https://0x7f000001", "https://[::1%25eth0]", "https://[::1", "https://::1",
		"https://h, ", ",", "https://h,,https://i", "https://h i", "https://h\x00", "https://h\nx", "https://h/\u202e", "https://h/" + strings.Repeat("a", 9000),
	} {
		_, err := builtin.ParseOrigins(text)
		require.Error(t, err, text)
	}
	_, err := builtin.ParseOrigins("https://ann:canary@h")
	require.NotContains(t, err.Error(), "canary")
}

func TestOriginsCoverWhatTheySayAndNothingElse(t *testing.T) {
	t.Parallel()
	list := "https://allowed.example.com/hooks,http://10.0.0.7:8080,http://[2001:db8::1]/v1/,https://xn--mnchen-3ya.example"
	o, err := builtin.ParseOrigins(list)
	require.NoError(t, err)
	for asked, sent := range map[string]string{
		"https://allowed.example.com/hooks":                            "https://allowed.example.com/hooks",
		"https://allowed.example.com:443/hooks/a?b=c/..":               "https://allowed.example.com/hooks/a?b=c/..",
		"HTTPS://ALLOWED.Example.COM/hooks/":                           "https://allowed.example.com/hooks/",
		"https://allowed.example.com/hooks/a%3ab%2Bc?%C3%A9%20=%0d%0a": "https://allowed.example.com/hooks/a%3ab%2Bc?%C3%A9%20=%0d%0a",
		"http://10.0.0.7:8080":                                         "http://10.0.0.7:8080",
		"http://10.0.0.7:8080/anything":                                "http://10.0.0.7:8080/anything",
		"http://[2001:DB8:0:0::1]/v1/x":                                "http://[2001:db8::1]/v1/x",
		"https://xn--mnchen-3ya.example/a...b":                         "https://xn--mnchen-3ya.example/a...b",
	} {
		u, err := o.Find(asked)
		require.NoError(t, err, asked)
		require.Equal(t, sent, u.String())
	}
	for _, asked := range []string{
		"", "/hooks", "allowed.example.com/hooks", "https:allowed.example.com/hooks", "//allowed.example.com/hooks",
		"https://allowed.example.com", "https://allowed.example.com/", "https://allowed.example.com/hooksters", "https://allowed.example.com/Hooks",
		"https://allowed.example.com.evil.com/hooks", "https://evil.com/allowed.example.com/hooks", "https://evilallowed.example.com/hooks",
		"https://allowed.example.com@evil.com/hooks", "https://allowed.example.com:443@evil.com/hooks", "https://evil.com#@allowed.example.com/hooks",
		"https://evil.com?@allowed.example.com/hooks", `https://evil.com\@allowed.example.com/hooks`, `https://allowed.example.com\.evil.com/hooks`,
		"https://u@allowed.example.com/hooks", "https://u:p@allowed.example.com/hooks", "https://allowed.example.com./hooks", "https://allowed.example.com%2eevil.com/hooks",
		"https://allowed.example.com%00.evil.com/hooks", "https://allowed.example.com\t/hooks", "https://allowed.example.com /hooks", " https://allowed.example.com/hooks",
		"https://allowed\u3002example\u3002com/hooks", "https://\uff41llowed.example.com/hooks", "https://münchen.example/", "https://alloweD.example.com:4433/hooks", "https://\u212Aa.example",
		"http://allowed.example.com/hooks", "http://allowed.example.com:443/hooks", "https://allowed.example.com:80/hooks", "ftp://allowed.example.com/hooks", "httpss://allowed.example.com/hooks", "javascript:https://allowed.example.com/hooks",
		"https://allowed.example.com/hooks/../admin", "https://allowed.example.com/hooks/..", "https://allowed.example.com/hooks/./..", "https://allowed.example.com/hooks/..;/admin", "https://allowed.example.com/hooks/.;x/a",
		"https://allowed.example.com/hooks/%2e%2e/admin", "https://allowed.example.com/hooks/%2E./admin", "https://allowed.example.com/hooks%2f..%2fadmin", "https://allowed.example.com/hooks/..%2Fadmin",
		"https://allowed.example.com/hooks/%252e%252e/admin", "https://allowed.example.com/hooks/..%5cadmin", `https://allowed.example.com/hooks/..\admin`, "https://allowed.example.com//hooks", "https://allowed.example.com/hooks//..//",
		"https://allowed.example.com/%68ooks/../x", "https://allowed.example.com/hooks%00", "https://allowed.example.com/hooks\r\nHost: evil", "https://allowed.example.com/hooks#x", "https://allowed.example.com:/hooks",
		"https://allowed.example.com/hooks/%0d%0aX:%20y", "https://allowed.example.com/hooks/%c0%ae%c0%ae/admin", "https://allowed.example.com/hooks/x%c0%afadmin", "https://allowed.example.com/hooks/%09..%09/admin",
		"https://allowed.example.com/hooks/..%20/admin", "https://allowed.example.com/hooks/%ef%bc%8e%ef%bc%8e/admin", "https://allowed.example.com/hooks/%C3%A9", "https://allowed.example.com/hooks/é", "https://allowed.example.com/hooks/%7f", "https://allowed.example.com/hooks/%c2%9b",
		"http://10.0.0.7", "http://10.0.0.7:80", "http://10.0.0.7:8080.evil.com/", "http://10.0.0.70:8080/", "http://167772167:8080/", "http://0x0a000007:8080/", "http://10.7:8080/", "http://012.0.0.7:8080/", "http://10.0.0.7:08080/", "http://10.0.0.7:8080:8080/",
		"http://[::ffff:10.0.0.7]:8080/", "http://[2001:db8::1]/v1", "http://[2001:db8::1]/v2/", "http://[2001:db8::1%25lo]/v1/", "http://2001:db8::1/v1/",
		"https://allowed.example.com/hooks/" + strings.Repeat("a", 9000),
	} {
		_, err := o.Find(asked)
		require.Error(t, err, asked)
	}
	none, err := builtin.ParseOrigins("")
	require.NoError(t, err)
	require.True(t, none.Empty())
}

func TestSpecialAddressesHaveToBeMeant(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "0.0.0.0:80", "0.1.2.3:80", "[::]:80", "169.254.169.254:80", "169.254.0.1:80", "[fe80::1]:80", "[fe80::1%eth0]:80",
		"[::ffff:127.0.0.1]:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[64:ff9b::7f00:1]:80", "[2002:7f00:1::]:80", "[2002:a9fe:a9fe::1]:80", "[::a9fe:a9fe]:80",
		"[::ffff:100.100.100.200]:80", "[::ffff:0.1.2.3]:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80", "100.100.100.200:80", "168.63.129.16:80", "169.254.170.2:80", "224.0.0.1:80", "[ff02::1]:80", "255.255.255.255:80", "nonsense",
		"[fd00:ec2::23]:80", "192.0.0.192:80", "[64:ff9b:1::a9fe:a9fe]:80", "[::ffff:0:a9fe:a9fe]:80", "[2001:0:1::1]:80", "[2001:db8::5efe:7f00:1]:80", "[2001:db8::200:5efe:a9fe:a9fe]:80", "240.0.0.1:80", "169.254.170.23:80", "[fd20:ce::1]:80",
	} {
		require.Error(t, builtin.CheckAddress("hooks.example.com", address), address)
	}
	for _, address := range []string{"10.0.0.7:80", "192.168.1.1:80", "172.16.0.1:80", "93.184.216.34:443", "[2606:2800:220:1::1]:443", "[fd12::1]:80"} {
		require.NoError(t, builtin.CheckAddress("hooks.example.com", address), address)
	}
	for address, refused := range map[string]bool{
		"10.0.0.7:80": true, "192.168.1.1:80": true, "172.16.0.1:80": true, "100.64.0.1:80": true, "[fd12::1]:80": true, "[64:ff9b::a00:7]:80": true, "[::ffff:10.0.0.7]:80": true,
		"93.184.216.34:443": false, "[2606:2800:220:1::1]:443": false, "172.32.0.1:80": false, "127.0.0.1:80": true,
	} {
		require.Equal(t, refused, builtin.CheckPublic("hooks.example.com", address) != nil, address)
	}
	require.NoError(t, builtin.CheckPublic("10.0.0.7", "10.0.0.7:80"), "the list says it")
	require.NoError(t, builtin.CheckAddress("localhost", "127.0.0.1:80"))
	require.NoError(t, builtin.CheckAddress("localhost", "[::1]:80"))
	require.Error(t, builtin.CheckAddress("localhost", "169.254.169.254:80"))
	require.NoError(t, builtin.CheckAddress("169.254.169.254", "169.254.169.254:80"), "the list says it")
}

func FuzzOrigins(f *testing.F) {
	o, err := builtin.ParseOrigins("https://allowed.example.com/hooks")
	require.NoError(f, err)
	f.Add("https://allowed.example.com/hooks/a?b")
	f.Add("https://allowed.example.com.evil.com/hooks")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := o.Find(text)
		if err != nil {
			return
		}
		require.Equal(t, "allowed.example.com", u.Host)
		require.Nil(t, u.User)
		require.True(t, u.Path == "/hooks" || strings.HasPrefix(u.Path, "/hooks/"), text)
		again, err := o.Find(u.String())
		require.NoError(t, err, text)
		require.Equal(t, u.String(), again.String())
	})
}
