package admit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

func TestTemplateMakesTheKeyOfTheArgs(t *testing.T) {
	args := `{"tenant":"Acme","n":12345678901234567890,"on":true,"none":null,"empty":"","account":{"id":7,"tags":["a"]}}`
	for _, row := range []struct{ template, key string }{
		{"", ""},
		{"all", "all"},
		{"{tenant}", "Acme"},
		{"{tenant}:{account.id}", "Acme:7"},
		{"{n}/{on}", "12345678901234567890/true"},
		{"{tenant}{none?}{empty?}{absent?}{account.absent?}", "Acme"},
		{"{{{tenant}}}", "{Acme}"},
	} {
		template, err := admit.ParseTemplate(row.template)
		require.NoError(t, err, row.template)
		key, err := template.Key([]byte(args))
		require.NoError(t, err, row.template)
		require.Equal(t, row.key, key, row.template)
		require.Equal(t, row.template, template.String())
	}
}

func TestTemplateNamesTheFieldThatIsMissing(t *testing.T) {
	args := `{"tenant":"acme","none":null,"empty":"","account":{"id":7,"tags":["a"]},"bell":"\u0007"}`
	for _, row := range []struct{ template, fault string }{
		{"{region}", `template "{region}": field region: is missing; want a value, or {region?} where there may be none`},
		{"{none}", `field none: is missing`},
		{"{empty}", `field empty: is empty`},
		{"{account.name}", `field account.name: is missing`},
		{"{account}", `field account: is an object or an array; want a text, a number or a boolean`},
		{"{account.tags}", `field account.tags: is an object or an array`},
		{"{tenant.id}", `field tenant.id: tenant is not an object`},
		{"{bell}", `without control characters`},
		{strings.Repeat("{tenant}", 64), `want at most 255 bytes`},
	} {
		template, err := admit.ParseTemplate(row.template)
		require.NoError(t, err, row.template)
		_, err = template.Key([]byte(args))
		require.ErrorContains(t, err, row.fault, row.template)
	}
	template, err := admit.ParseTemplate("{tenant}")
	require.NoError(t, err)
	_, err = template.Key([]byte(`["acme"]`))
	require.ErrorContains(t, err, "the args are not an object")
}

func TestTemplateThatCannotBeReadIsRefused(t *testing.T) {
	for template, fault := range map[string]string{
		"{tenant": `template "{tenant": {tenant has no }; want {{ for a brace`,
		"tenant}": `} without {; want }} for a brace`,
		"{}":      `{} is not a field, such as {tenant}, {account.id} or {region?}`,
		"{a..b}":  `{a..b} is not a field`,
		"{a?b}":   `{a?b} is not a field`,
		"{a {b}":  `{a {b} is not a field`,
	} {
		_, err := admit.ParseTemplate(template)
		require.ErrorContains(t, err, fault)
	}
}

// FuzzTemplate: whatever is typed is refused, or makes a key that can be stored,
// of any args that are JSON.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{tenant}:{region?}", "{a.b}", "{{x}}", "}", "{", "{a?}{a}"} {
		f.Add(seed, `{"tenant":"acme","a":{"b":1e3}}`)
	}
	f.Fuzz(func(t *testing.T, text, args string) {
		template, err := admit.ParseTemplate(text)
		if err != nil || !json.Valid([]byte(args)) {
			return
		}
		if key, err := template.Key([]byte(args)); err == nil {
			require.NoError(t, store.CheckLimitKey(key))
		} else {
			require.ErrorContains(t, err, "template ")
		}
	})
}
