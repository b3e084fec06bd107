// Classifies rows of four numbers: `classify 1 2 3 4 4 3 2 1`.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func classify(numbers []float32) error {
	net, err := NewNet()
	if err != nil {
		return err
	}
	defer net.Close()
	x, err := Of(numbers, int64(len(numbers)/4), 4)
	if err != nil {
		return err
	}
	outputs, err := net.Run(x)
	if err != nil {
		return err
	}
	y, err := Data[float32](outputs[0])
	if err != nil {
		return err
	}
	columns := int(outputs[0].Shape[1])
	for ; len(y) > 0; y = y[columns:] {
		for _, p := range y[:columns] {
			fmt.Printf("%.6f ", p)
		}
		fmt.Println()
	}
	return nil
}

func main() {
	var numbers []float32
	for _, word := range os.Args[1:] {
		number, err := strconv.ParseFloat(word, 32)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		numbers = append(numbers, float32(number))
	}
	if err := classify(numbers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
