package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook.
const (
	headerID        = "Webhook-Id"
	headerAt        = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	leastSecret  = 16              // bytes
	tolerance    = 5 * time.Minute // of a timestamp
)

// ErrSignature is the error of Verify.
var ErrSignature = errors.New("the signature of the webhook is not valid")

// Verify reports whether a request that a webhook received was sent by a party that has
// the secret, within the last five minutes. body is all of it. Remember the header
// Webhook-Id for as long if a repeat would do harm: the same batch may come twice.
func Verify(secret string, header http.Header, body []byte, now time.Time) error {
	keys, err := parseSecrets(secret)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(header.Get(headerAt), 10, 64)
	at := time.Unix(seconds, 0)
	if err != nil || now.Sub(at).Abs() > tolerance {
		return ErrSignature
	}
	for one := range strings.SplitSeq(header.Get(headerSignature), " ") {
		for _, key := range keys {
			if hmac.Equal([]byte(one), []byte(signature(key, header.Get(headerID), at, body))) {
				return nil
			}
		}
	}
	return ErrSignature
}

// CheckSecret reports whether a text may be the secret of a webhook.
func CheckSecret(text string) error {
	_, err := parseSecrets(text)
	return err
}

// parseSecrets reads one secret or several, separated by spaces.
func parseSecrets(text string) (keys [][]byte, err error) {
	for _, one := range strings.Fields(text) {
		key := []byte(one)
		if encoded, ok := strings.CutPrefix(one, secretPrefix); ok {
			if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return nil, errors.New("the secret of a webhook: want base64 after " + secretPrefix)
			}
		}
		if len(key) < leastSecret {
			return nil, errors.New("the secret of a webhook: want at least 16 bytes")
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("a webhook needs a secret")
	}
	return keys, nil
}

// signatures are those of all keys.
func signatures(keys [][]byte, id string, at time.Time, body []byte) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = signature(key, id, at, body)
	}
	return strings.Join(all, " ")
}

func signature(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
