package pgtest

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
)

const (
	poolerPort = "6432"
	frontPort  = "6433"

	cancelRequest = 80877102 // the code of a CancelRequest in PostgreSQL's protocol
)

// front listens beside a PgBouncer in its directory and passes every connection on
// to it, but those that ask to cancel a statement: PgBouncer 1.18 to 1.20 may exit
// when one comes (https://github.com/pgbouncer/pgbouncer/issues/904), and with it
// the connections of all tests. A client that gives a statement up closes its
// connection all the same.
func front(dir string) (io.Closer, error) {
	listener, err := net.Listen("unix", socketOf(dir, frontPort))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go passOn(client, socketOf(dir, poolerPort))
		}
	}()
	return listener, nil
}

func socketOf(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// passOn copies bytes both ways until one side closes, which closes both.
func passOn(client net.Conn, to string) {
	defer func() { _ = client.Close() }()
	first, err := firstMessage(client)
	if err != nil || binary.BigEndian.Uint32(first[4:]) == cancelRequest {
		return
	}
	server, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if _, err := server.Write(first); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
}

// firstMessage reads a client's first message, its length and its code included.
// PgBouncer takes it in one piece only.
func firstMessage(client io.Reader) ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(client, head); err != nil {
		return nil, err
	}
	rest := int(binary.BigEndian.Uint32(head)) - len(head)
	if rest < 0 || rest > 10_000 { // PostgreSQL's own limit
		return nil, io.ErrUnexpectedEOF
	}
	message := make([]byte, len(head)+rest)
	copy(message, head)
	_, err := io.ReadFull(client, message[len(head):])
	return message, err
}
