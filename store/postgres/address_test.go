package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// shows tells whether four bytes in a row of a secret stand in a text, where
// they do not stand in what is public.
func shows(text, secret, public string) string {
	for i := range max(len(secret)-3, 0) {
		if part := secret[i : i+4]; strings.Contains(text, part) && !strings.Contains(public, part) {
			return part
		}
	}
	return ""
}

// FuzzDescribe compares with the parser of the driver: whatever it takes for the
// password is not shown.
func FuzzDescribe(f *testing.F) {
	for _, dsn := range []string{
		"postgres://a:123#cret@127.0.0.1:1/x", "postgres://a:123?cret@127.0.0.1:1/x", "postgres://127.0.0.1:1/x?password=a#bcdef", `host=h password=foo\ barbaz`,
		"host=h user='a'password=s3cret", "postgres://a:s3@cret@127.0.0.1:1/x", "postgres://a:%73ecret@h,i:2/x?sslmode=disable", "host=a,b password='it''s'", "postgres://a:b:cdef@/x?host=%2Frun",
		"host=h password=  secret1 sslpassword=secret2", "postgres://h/x?pass%77ord=secret", "host=h PASSWORD=secret",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "file") || strings.Contains(dsn, "ssl") || strings.Contains(dsn, "service") {
			return // the driver would read files
		}
		shown, err := postgres.Describe(dsn)
		if err != nil {
			require.ErrorIs(t, err, store.ErrInvalid)
			return
		}
		read, err := pgconn.ParseConfig(dsn)
		require.NoError(t, err, dsn)
		public := url.QueryEscape(read.User) + " " + url.QueryEscape(read.Database) + " " + read.Host + " " + url.QueryEscape(read.Host) + " postgres:// ?sslmode=prefer :5432/"
		for _, other := range read.Fallbacks {
			public += " " + url.QueryEscape(other.Host)
		}
		public = strings.ReplaceAll(public, "+", "%20")
		if strings.ContainsAny(read.Password, "@:/?=&, ") || read.Port != 5432 {
			return // may share four bytes with two parts and what lies between them
		}
		require.Empty(t, shows(shown, read.Password, public), "%q is shown as %q", dsn, shown)
	})
}

// FuzzPassword writes a password in the ways of people, also the wrong ones:
// either the connection string is refused, or the password is not shown.
func FuzzPassword(f *testing.F) {
	for _, password := range []string{"123#cret", "123?cret", "1/cret@", "s3@cret", "s3cret", "[s3cret", "%73ecret", "a b'c\\d", "1234/secret?x=y", "@@@@@", "::::::", "1#2/3?4@5secret"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if strings.ContainsAny(password, "\x00") || len(password) < 4 {
			return
		}
		const public = "postgres://u@127.0.0.1:65000/d?sslmode=prefer"
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password)
		for _, dsn := range []string{
			"postgres://u:" + password + "@127.0.0.1:65000/d",
			"postgres://u:" + url.PathEscape(password) + "@127.0.0.1:65000/d",
			"postgres://127.0.0.1:65000/d?user=u&password=" + url.PathEscape(strings.ReplaceAll(password, "&", "%26")),
			"user=u host=127.0.0.1 port=65000 dbname=d password='" + quoted + "'",
			"user='u'password='" + quoted + "'host=127.0.0.1 port=65000 dbname=d",
		} {
			shown, err := postgres.Describe(dsn)
			require.Empty(t, shows(shown, password, public), "%q is shown as %q", dsn, shown)
			if err != nil {
				require.Empty(t, shows(err.Error(), password, "durable: invalid: the database URL, or a service that it names, is ambiguous: "+
					"write @ # ? and / in its user, password and options as %40 %23 %3F and %2F want postgres://user:password@host:port/database?option=value, special characters in its parts written as %XX"+
					"cannot be read: want"))
			}
		}
	})
}
