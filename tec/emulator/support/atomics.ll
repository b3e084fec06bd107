;;; bf16_halves
  %${name}s = shl i32 $value, 16
  %${name}t = and i32 $value, -65536
  %${name}l = bitcast i32 %${name}s to float
  %${name}h = bitcast i32 %${name}t to float

;;; round_bf16
  %${name}b = bitcast float $value to i32
  %${name}c = lshr i32 %${name}b, 16
  %${name}d = and i32 %${name}c, 1
  %${name}e = add i32 %${name}d, 32767
  %${name}f = add i32 %${name}b, %${name}e
  %${name}q = or i32 %${name}b, 4194304
  %${name}n = fcmp uno float $value, $value
  %${name}g = select i1 %${name}n, i32 %${name}q, i32 %${name}f
  %$name = and i32 %${name}g, -65536

;;; pk_add_bf16
  ; The host has no bf16 addition: a loop of compare and swap around one in f32.
  %bf0 = load atomic i32, ptr %p monotonic, align 4
$halves_bd  br label %bfloop
bfloop:
  %old = phi i32 [ %bf0, %at_lane ], [ %bfnew, %bfloop ]
$halves_bo  %bfl = fadd float %bol, %bdl
  %bfh = fadd float %boh, %bdh
$round_bfx$round_bfy  %bfz = lshr i32 %bfx, 16
  %bfw = or i32 %bfz, %bfy
  %bfc = cmpxchg ptr %p, i32 %old, i32 %bfw monotonic monotonic
  %bfnew = extractvalue {i32, i1} %bfc, 0
  %bfok = extractvalue {i32, i1} %bfc, 1
  br i1 %bfok, label %bfdone, label %bfloop
bfdone:

;;; rare
  %rare0 = load atomic $t, ptr %p monotonic, align $align
  br label %rareloop
rareloop:
  %old = phi $t [ %rare0, %at_lane ], [ %raresaw, %rareloop ]
$body  %rarex = cmpxchg ptr %p, $t %old, $t %new monotonic monotonic
  %raresaw = extractvalue {$t, i1} %rarex, 0
  %rareok = extractvalue {$t, i1} %rarex, 1
  br i1 %rareok, label %bfdone, label %rareloop
bfdone:

;;; atomic
  %az = zext <$w x i32> %addr to <$w x i64>
  %bi = ptrtoint ptr %base to i64
  %bv_i = insertelement <$w x i64> poison, i64 %bi, i64 0
  %bv = shufflevector <$w x i64> %bv_i, <$w x i64> poison, <$w x i32> zeroinitializer
  %aa = add <$w x i64> %az, %bv
  store <$w x i64> %aa, ptr %abuf

;;; atomic_2
  %pp = getelementptr i64, ptr %abuf, i64 %at_li
  %pi = load i64, ptr %pp
  %p = inttoptr i64 %pi to ptr
  %dlo_p = getelementptr i32, ptr %out, i64 %at_li
  %dlo = load i32, ptr %dlo_p

;;; read64
  %${name}_p1 = getelementptr i8, ptr %dlo_p, i64 $second_at
  %${name}_1 = load i32, ptr %${name}_p1
  %${name}_z0 = zext i32 %${name}_0 to i64
  %${name}_z1 = zext i32 %${name}_1 to i64
  %${name}_s = shl i64 %${name}_z1, 32
  %$name = or i64 %${name}_z0, %${name}_s

;;; atomic_3
  %o0 = trunc i64 %old to i32
  %os = lshr i64 %old, 32
  %o1 = trunc i64 %os to i32
  store i32 %o0, ptr %dlo_p
  %dhi_p = getelementptr i8, ptr %dlo_p, i64 $row_bytes
  store i32 %o1, ptr %dhi_p
