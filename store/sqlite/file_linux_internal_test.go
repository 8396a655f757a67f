package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMountsAreRead(t *testing.T) {
	const root = "22 1 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
	for name, one := range map[string]struct {
		table, path string
		alone       bool
	}{
		"no table":                   {"", "/data/x.db", false},
		"a line cut short":           {root + "23 22\n", "/data/x.db", false},
		"no mount of its own":        {root, "/data/x.db", false},
		"a file":                     {root + "23 22 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", true},
		"a file of another device":   {root + "23 22 252:2 /data/x.db /data/x.db rw - ext4 /dev/vdb1 rw\n", "/data/x.db", true},
		"a file that was replaced":   {root + "23 22 252:1 /data/x.db//deleted /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", true},
		"another file":               {root + "23 22 252:1 /srv/x.db /data/x.db-old rw - ext4 /dev/vda1 rw\n", "/data/x.db", false},
		"its directory":              {root + "23 22 252:1 /srv /data rw - ext4 /dev/vda1 rw\n", "/data/x.db", false},
		"a directory with a space":   {root + "23 22 252:1 /srv/x.db /my\\040data/x.db rw - ext4 /dev/vda1 rw\n", "/my data/x.db", true},
		"over itself":                {root + "23 22 252:1 /data/x.db /data/x.db ro - ext4 /dev/vda1 rw\n", "/data/x.db", false},
		"over itself in a mount":     {root + "23 22 252:1 /srv /data rw - ext4 /dev/vda1 rw\n24 23 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", false},
		"twice, at last over itself": {root + "23 22 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n24 23 252:1 /data/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", false},
		"twice, at first over itself": {
			root + "24 23 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n23 22 252:1 /data/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", true,
		},
		"covered by a directory": {
			root + "23 22 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n24 22 252:1 /srv /data rw - ext4 /dev/vda1 rw\n", "/data/x.db", false,
		},
		"a root without a line": {"23 7 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", true},
		"a parent of itself":    {"1 1 0:1 / / rw - rootfs none rw\n23 1 252:1 /srv/x.db /data/x.db rw - ext4 /dev/vda1 rw\n", "/data/x.db", true},
	} {
		require.Equal(t, one.alone, mountedAlone(parseMounts(one.table), one.path), name)
	}
	require.Equal(t, `a b\c\9\04`, unescape(`a\040b\134c\9\04`))
}
