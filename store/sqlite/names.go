package sqlite

import (
	"context"
	"fmt"
	"time"
)

// SQLite keeps the write-ahead log beside the name by which the file was opened. A file that
// is open under two names, such as those of a hard link, or in a container into which it was
// mounted alone, has two logs: what one process has written the others do not see, and what
// each writes back destroys what the others have. SQLite does not notice.

// oneNameHint says what to do about a file with several names.
const oneNameHint = "open the file under one name in all processes, and mount the directory into a container, not the file alone"

// logWait is how long Open waits for another process that uses another log: one that has just
// closed the database, and with it removed the log, is gone in a moment.
const logWait = 2 * time.Second

func errOtherLog(path string) error {
	return fmt.Errorf("%s is open in another process with another write-ahead log than %s-wal: under another name (a hard link, or a mount of the file alone), or with a log that has been deleted", path, path)
}

// announceLog tells all processes that have the file open, or will, which log this one uses,
// and refuses a file for which another one is in use. The announcement ends when the
// process has closed the file, in whatever way.
func (f *file) announceLog(ctx context.Context) error {
	for begun := time.Now(); ; {
		if others, known := f.otherLogs(); !known {
			return nil
		} else if !others {
			f.noteLog()
			if others, _ = f.otherLogs(); !others {
				return nil
			}
			f.unnoteLog() // another one has come at the same moment; one of us will be first
		}
		waited := time.Since(begun)
		if waited >= logWait {
			return fmt.Errorf("%w; %s", errOtherLog(f.path), oneNameHint)
		}
		if err := pause(ctx, logWait/4); err != nil { // the longest pauses, so that two do not keep meeting
			return err
		}
	}
}
