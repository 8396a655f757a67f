package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	text []byte
	mode fs.FileMode
}

// tarball packs files below a directory. It depends on nothing but its arguments.
func tarball(dir string, files []entry, made time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, file := range files {
		header := &tar.Header{Name: dir + "/" + file.name, Mode: int64(file.mode), Size: int64(len(file.text)), ModTime: made, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(file.text); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// zipped is tarball in the format that Windows opens.
func zipped(dir string, files []entry, made time.Time) ([]byte, error) {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for _, file := range files {
		header := &zip.FileHeader{Name: dir + "/" + file.name, Method: zip.Deflate, Modified: made}
		header.SetMode(file.mode)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(file.text); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
