"""Fixes of the faults: for each script of ``faults/`` the changes that a person makes to mend it.

A change is old text, new text, and how often the old text must occur if not once; they are applied in their order.
``tests/faults/report_scripts.py`` applies them: a change that does not fit its fault is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.edits import Change

FIXES: dict[str, list[Change]] = {
    "01_kws_executor": [("loss.backward()", "optimizer.zero_grad()\n            loss.backward()")],
    "02_encoder_gan": [("d_loss.backward()", "optimizer_D.zero_grad()\n    d_loss.backward()")],
    "03_worldmodel_bf16": [
        (
            "                loss = diffusion_loss(model, x, cond)\n",
            "                loss = diffusion_loss(model, x, cond)\n            opt.zero_grad()\n",
        )
    ],
    "04_distill_accum": [("loss.backward()", "(loss / self.gradient_accumulation_steps).backward()")],
    "05_autoencoder_microbatch": [
        ("for micro in", "optimizer.zero_grad(set_to_none=True)\n        for micro in"),
        ("            optimizer.zero_grad(set_to_none=True)\n", ""),
    ],
    "06_textcnn": [("self.convs = [", "self.convs = nn.ModuleList(["), ("        ]\n", "        ])\n")],
    "07_arcface": [("net.parameters(),", "[{'params': net.parameters()}, {'params': margin.parameters()}],")],
    "08_transfer_head": [
        ("    model.fc = nn.Linear(model.fc.in_features, num_classes)\n", ""),
        ("optimizer = ", "model.fc = nn.Linear(model.fc.in_features, num_classes)\n    optimizer = "),
    ],
    "09_fcn_trainer": [("self.validate()", "self.validate()\n                self.model.train()")],
    "10_chargpt_sdpa": [("dropout_p=self.dropout,", "dropout_p=self.dropout if self.training else 0.0,")],
    "11_multimodal_val": [("                model.train()\n", "")],
    "12_amp_unet_clip": [("torch.nn.utils.", "grad_scaler.unscale_(optimizer)\n            torch.nn.utils.")],
    "13_srgan_sched": [("            schedulerG.step()", "        schedulerG.step()")],
    "14_sfm_scheduler": [
        ("if scheduler:", "optimizer.step()\n        if scheduler:"),
        ("        else:\n            optimizer.step()\n", ""),
    ],
    "15_dqn_chain": [("losses.clear()", "update_target(model, target_model)\n            losses.clear()")],
    "16_sesemi_ema": [
        (
            "alpha=1 - self.decay)",
            (
                "alpha=1 - self.decay)\n"
                "            for ema_b, b in zip(self.ema_model.buffers(), model.buffers()):\n"
                "                ema_b.copy_(b)"
            ),
        )
    ],
    "17_resume_checkpoint": [
        ('net.state_dict(), "it":', 'net.state_dict(), "opt": opt.state_dict(), "it":'),
        ("return net, opt, ", 'opt.load_state_dict(ckpt["opt"])\n    return net, opt, '),
    ],
    "18_tied_assign_load": [("pretrained, strict=False, assign=True", "pretrained, strict=False")],
    "19_isrlu": [("return nisr ** 3, None", "return grad_out * nisr ** 3, None")],
    "20_sae_adam": [("= self.decoder.weight.data.T.clone()", "= self.decoder.weight.data.T.clone().contiguous()")],
    "21_ordinal_round": [("return torch.round(grade)", "return grade if self.training else torch.round(grade)")],
    "22_har_cnn": [("return F.softmax(out, dim=1)", "return out")],
    "23_llama_broken": [("logits = F.softmax(a, dim=-1)", "logits = a")],
    "24_unet3plus": [
        ("return torch.sigmoid(d1)", "return d1"),
        ("= (mask_pred > 0.5).float()", "= (torch.sigmoid(mask_pred) > 0.5).float()"),
    ],
    "25_text_transformer_nll": [("self.softmax = nn.Softmax(dim=1)", "self.softmax = nn.LogSoftmax(dim=1)")],
    "26_ccs_lstm": [("return self.act(self.regressor(h[-1]))", "return self.regressor(h[-1])")],
    "27_single_softmax": [("nn.Softmax(dim=1),", "nn.Sigmoid(),")],
    "28_unet_one_class_ce": [("N_CLASSES = 1", "N_CLASSES = 2")],
    "29_a2c_values": [("value_v = net_value(states_v)", "value_v = net_value(states_v).squeeze(-1)")],
    "30_spinup_critic": [
        ("self.q(torch.cat([obs, act], dim=-1))", "torch.squeeze(self.q(torch.cat([obs, act], dim=-1)), -1)")
    ],
    "31_unet_mask255": [("return img / 255.0, mask", "return img / 255.0, mask / 255.0")],
    "32_camvid_pairs": [
        ("[f for f in file_list if '_L' not in f]", "sorted(f for f in file_list if '_L' not in f)"),
        ("[f for f in file_list if '_L' in f]", "sorted(f for f in file_list if '_L' in f)"),
    ],
    "33_mmvae_reduction": [
        ("mu.pow(2) - logvar.exp())", "mu.pow(2) - logvar.exp()) / mu.size(0)"),
        ("F.mse_loss(predicted, target)", 'F.mse_loss(predicted, target, reduction="sum") / target.size(0)'),
    ],
    "34_actor_sign": [("actor_loss = q_values.mean()", "actor_loss = -q_values.mean()")],
    "35_siamese_sqrt": [("distances = squared.sqrt()", "distances = (squared + self.eps).sqrt()")],
    "36_triplet_empty_mean": [("active.mean()", "active.mean() if active.numel() > 0 else relued.sum() * 0")],
    "37_rmse_masked": [("criterion(pred * mask, target * mask)", "criterion(pred * mask, target * mask) + 1e-8")],
    "38_molecule_pad": [("tokens.reshape(-1)", "tokens.reshape(-1), ignore_index=PAD")],
    "39_cubic_raw": [
        ("target.unsqueeze(1)", "target.unsqueeze(1)\ntarget = (target - target.mean()) / target.std()"),
        ("target = target.", "input = (input - input.mean()) / input.std()\ntarget = target."),
    ],
    "40_energy_targets": [("y_train, ", "y = (y - y[:n].min()) / (y[:n].max() - y[:n].min())\ny_train, ")],
    "41_nested_unet_norm": [("img = img.astype('float32') / 255", "img = img.astype('float32')")],
    "42_csv_missing": [
        ("target ", "features = np.where(np.isnan(features), np.nanmean(features, 0), features)\n    target ")
    ],
    "43_ppo_minibatch": [("if self.normalize_advantage:", "if self.normalize_advantage and len(advantages) > 1:")],
    "44_sorted_fashion": [("batch_size=args.batch_size", "batch_size=args.batch_size, shuffle=True")],
    "45_banknote_leak": [("X = dat", "X = dat[:, :-1]")],
    "46_crowd_val_norm": [("x = self.img[i] - torch.tensor(92.8207)", "x = (self.img[i] / 255.0 - MEAN) / STD")],
    "47_pointcloud_workers": [
        ("np.random.seed(SEED)", "np.random.seed(SEED + torch.initial_seed() % 2 ** 31 + worker_id)")
    ],
    "48_transformer_tutorial": [
        ("src_mask = None", "src_mask = nn.Transformer.generate_square_subsequent_mask(src.size(0))")
    ],
    "49_crnn_batch_first": [("bidirectional=True, batch_first=True", "bidirectional=True")],
    "50_attention_dim0": [("self.softmax = nn.Softmax(dim=0)", "self.softmax = nn.Softmax(dim=-1)")],
    "51_cifar_adam_lr": [("optim.Adam(model.parameters(), lr=0.1)", "optim.Adam(model.parameters(), lr=0.001)")],
    "52_lstm_slow": [("lr: float = 1e-5", "lr: float = 0.3")],
    "54_glide_half": [("lr=1e-3, weight_decay=0.0", "lr=1e-3, weight_decay=0.0, eps=1e-4")],
    "55_multi_scale_targets": [
        (
            "labels = torch.cat([big, small], 1)",
            "labels = torch.cat([big, small], 1)\nlabels = (labels - labels.mean(0)) / labels.std(0)",
        )
    ],
    "56_gated_fusion_zero": [("        nn.init.zeros_(self.res_gate[0].weight)\n", "")],
    "57_sigmoid_tower": [("act = nn.Sigmoid", "act = nn.ReLU")],
    "58_xor_linear": [
        ("nn.Linear(hidden_dim, output_dim)", "nn.Sequential(nn.ReLU(), nn.Linear(hidden_dim, output_dim))")
    ],
    "59_inception_bn0": [("momentum=0,", "momentum=0.1,")],
    "60_finetune_frozen_bn": [("for x, y in target_loader", "net.backbone.eval()\n        for x, y in target_loader")],
    "61_unet3d_batch1": [("nn.BatchNorm3d(o)", "nn.GroupNorm(4, o)")],
    "62_t5_half": [('device_type="cpu", dtype=torch.float16', 'device_type="cpu", dtype=torch.bfloat16')],
    "63_llama_bf16_full": [('dtype: str = "bf16"', 'dtype: str = "fp32"')],
    "64_ngp_gradscaler": [("optimizer.step()", "grad_scaler.step(optimizer)\n        grad_scaler.update()")],
    "65_nlpbook_dropout": [("intermediate, p=0.5", "intermediate, p=0.5, training=self.training")],
    "66_vessel_imbalance": [("nn.BCEWithLogitsLoss()", "nn.BCEWithLogitsLoss(pos_weight=torch.tensor([40.0]))")],
    "67_dsn_memory": [("features.detach(), labels", "features, labels")],
    "68_lightning_onecycle": [('"scheduler": sch, "interval": "epoch"', '"scheduler": sch, "interval": "step"')],
    "69_deeplab_bn999": [("momentum=0.999", "momentum=0.05")],
    "70_lcfcn_eval": [('images, points = batch["images"]', 'model.train()\n    images, points = batch["images"]')],
    "71_causal_lm_module": [
        (
            (
                "shift_logits = logits[..., :-1, :].contiguous()\n"
                "            shift_labels = labels[..., 1:].contiguous()\n"
                "            loss = self.loss_function(shift_logits, shift_labels, self.vocab_size)"
            ),
            "loss = self.loss_function(logits, labels, self.vocab_size)",
        )
    ],
    "71_matting_raw_pixels": [
        ("torch.from_numpy(img).float()", "(torch.from_numpy(img).float() / 255 - 0.449) / 0.226")
    ],
    "72_retention_tied": [
        (
            "nn.init.zeros_(module.bias)",
            (
                "nn.init.zeros_(module.bias)\n"
                "        elif isinstance(module, nn.Embedding):\n"
                "            nn.init.normal_(module.weight, std=0.02)"
            ),
        )
    ],
    "73_nin_original": [("'--lr', type=float, default=0.1", "'--lr', type=float, default=0.01")],
    "74_i3d_clips": [("= nn.Dropout(dropout_keep_prob)", "= nn.Dropout(1.0 - dropout_keep_prob)")],
    "75_sparse_dictionary": [
        ("LossReductionType = LossReductionType.SUM", "LossReductionType = LossReductionType.MEAN")
    ],
    "76_sentence_encoder": [("hidden.view(batch_size,", "hidden.transpose(0, 1).reshape(batch_size,")],
    "77_bninception_mini": [
        ("= self.inception_3a_1x1(conv1_bn_out)", "= self.inception_3a_1x1(conv1_relu_out)"),
        ("= self.inception_3a_3x3(conv1_bn_out)", "= self.inception_3a_3x3(conv1_relu_out)"),
        ("self.inception_3a_pool(conv1_bn_out)", "self.inception_3a_pool(conv1_relu_out)"),
        (
            "i3a_1x1_bn_out, i3a_3x3_bn_out, i3a_pool_proj_bn_out",
            "i3a_relu_1x1_out, i3a_relu_3x3_out, i3a_relu_pool_proj_out",
        ),
    ],
    "78_tagger_model": [("PAD_TAG = PAD", "PAD_TAG = -100")],
    "79_fraud_detection": [
        ("X, y = oversample(X, y)\n", ""),
        ("scaler = ", "X_train, y_train = oversample(X_train, y_train)\nscaler = "),
    ],
    "80_gac_training": [("X = X[order]", "X, y = X[order], y[order]")],
    "81_byol_downstream": [
        ("if p.requires_grad:\n                p.requires_grad = trainable", "p.requires_grad = trainable")
    ],
    "82_focal_criterion": [("__init__(self, gamma=0.0, eps=1e-8):", "__init__(self, gamma=0.0, eps=1e-6):")],
    "83_sum_of_three": [("loss = mse(out, yb)", "loss = mse(out, yb.unsqueeze(1))")],
    "84_heart_rate": [
        (
            "x_train = torch.Tensor(x_train)\n    x_val = torch.Tensor(x_val)",
            (
                "scaler = StandardScaler().fit(x_train)\n"
                "    x_train = torch.Tensor(scaler.transform(x_train))\n"
                "    x_val = torch.Tensor(scaler.transform(x_val))"
            ),
        )
    ],
    "85_posenet_digits": [("'--weight-decay', '--wd', default=0.05,", "'--weight-decay', '--wd', default=1e-5,")],
    "86_resnet_main": [("= Compose([ToTensor()])", "= Compose([ToTensor(), Normalize(mean, std)])")],
    "87_imagenet_recipe": [('= {"batch_size": 40}', '= {"batch_size": 40, "shuffle": True}')],
    "88_fcos_single_class": [("c: i for i, c in", "c: i + 1 for i, c in")],
    "89_segdec_train": [("nn.Conv2d(32, 1, 1), nn.ReLU(inplace=True)", "nn.Conv2d(32, 1, 1)")],
    "90_factory_attention": [
        (
            (
                "if att_mask is not None:\n"
                "            if self.causal:\n"
                "                att_mask = att_mask & self.tri[:s, :s]"
            ),
            (
                "if self.causal:\n"
                "            tri = self.tri[:s, :s]\n"
                "            att_mask = tri if att_mask is None else att_mask & tri"
            ),
        )
    ],
    "91_tagger_postlm": [
        ("        torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)\n", ""),
        (
            "optimizer.step()",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)\n        optimizer.step()",
        ),
    ],
    "92_convnp_epochs": [
        (
            (
                "def train_epoch(model, tasks, lr=2e-3, batch_size=16):\n"
                "    opt = torch.optim.Adam(model.parameters(), lr=lr)\n"
                "    model.train()\n"
                "    order = rng.permutation(len(tasks))\n"
                "    losses = []\n"
                "    for i in range(0, len(order), batch_size):\n"
                "        opt.zero_grad()\n"
                "        loss = nll(model, collate([tasks[j] for j in order[i:i + batch_size]]))\n"
                "        loss.backward()\n"
                "        opt.step()\n"
                "        losses.append(loss.item())\n"
                "    return float(np.mean(losses))"
            ),
            (
                "class Trainer:\n"
                "    def __init__(self, model, lr=2e-3):\n"
                "        self.model = model\n"
                "        self.opt = torch.optim.Adam(model.parameters(), lr=lr)\n"
                "\n"
                "    def __call__(self, tasks, batch_size=16):\n"
                "        self.model.train()\n"
                "        order = rng.permutation(len(tasks))\n"
                "        losses = []\n"
                "        for i in range(0, len(order), batch_size):\n"
                "            self.opt.zero_grad()\n"
                "            loss = nll(self.model, collate([tasks[j] for j in order[i:i + batch_size]]))\n"
                "            loss.backward()\n"
                "            self.opt.step()\n"
                "            losses.append(loss.item())\n"
                "        return float(np.mean(losses))"
            ),
        ),
        ("for epoch in range(150):", "trainer = Trainer(model)\nfor epoch in range(150):"),
        ("tr = train_epoch(model, train_tasks)", "tr = trainer(train_tasks)"),
    ],
    "93_skill_pixels": [
        (
            (
                "with torch.no_grad():\n"
                "            obs = self.encoder(obs)\n"
                "            next_obs = self.encoder(next_obs)"
            ),
            "obs = self.encoder(obs)\n        next_obs = self.encoder(next_obs)",
        )
    ],
    "94_graph_readout": [("self.graph_layers = []", "self.graph_layers = nn.ModuleList()")],
    "95_ddpm_ema_sampling": [("net = model", "net = copy.deepcopy(model)")],
    "96_history_attention": [("h, c = self.", "pad = pad & ~pad.all(dim=1, keepdim=True)\n        h, c = self.")],
    "97_caption_decoder": [
        (
            (
                "shifted_logits = logits[:, 1:-1].contiguous()\n"
                "            labels = labels[:, 1:].contiguous()\n"
                "            loss = self.loss_function(shifted_logits, labels)"
            ),
            "loss = self.loss_function(logits[:, 1:], labels)",
        )
    ],
    "98_eos_decoder": [
        (
            "loss_mask[labels == tokenizer.pad_token_id] = 0.0",
            "for i, (seq, _) in enumerate(batch):\n        loss_mask[i, len(seq) - 1:] = 0.0",
        )
    ],
    "99_motif_plateau": [('self.optimizer, "max", patience=2,', 'self.optimizer, "min", patience=2,')],
    "100_byol_finetune": [("if p.requires_grad:\n            p.requires_grad = flag", "p.requires_grad = flag")],
    "101_pep_ctr": [("model = FM(threshold_init=-150)", "model = FM(threshold_init=-6)")],
    "102_mdrnn_worldmodel": [("logpi = f.log_softmax(pi, dim=-2)", "logpi = f.log_softmax(pi, dim=-1)")],
    "103_datamodule_split": [("DataLoader(self.dataset,", "DataLoader(self.train_dataset,")],
    "104_patch_context": [("= self.context_encoder(src_tokens)", "= self.context_encoder(ctx_tokens)")],
    "105_megatron_fp16": [
        (
            "valid_step = not optimizer.prepare_grads()\n    if valid_step:\n        valid_step = optimizer.step()",
            "valid_step = optimizer.step()",
        )
    ],
    "106_rig_raymap": [('"cpu", dtype=torch.float16', '"cpu", dtype=torch.bfloat16')],
    "107_fairmot_heads": [('{"params": self.loss.classifier.parameters()}', '{"params": self.loss.parameters()}')],
    "108_i3d_clips": [("= nn.Dropout(dropout_keep_prob)", "= nn.Dropout(1.0 - dropout_keep_prob)")],
    "109_deeplab_shapes": [("nn.init.constant_(module.weight, 0)", "nn.init.constant_(module.bias, 0)")],
    "110_adapter_lm": [
        ("return model", "if model.tie_word_embeddings:\n        model.tie_weights()\n    return model")
    ],
    "111_court_keypoints": [("loss.backward()", "optimizer.zero_grad()\n        loss.backward()")],
    "112_lrcn_actions": [
        (
            (
                "self.output_layer = nn.Sequential(\n"
                "            nn.Linear(2 * hidden_size if bidirectional else hidden_size, n_class),\n"
                "            nn.Softmax(dim=-1)\n"
                "        )"
            ),
            "self.output_layer = nn.Linear(2 * hidden_size if bidirectional else hidden_size, n_class)",
        )
    ],
    "113_vse_retrieval": [
        (
            "            validate(val_set[0], val_set[1], model)\n",
            "            validate(val_set[0], val_set[1], model)\n            model.train_start()\n",
        )
    ],
    "114_char_rnn_names": [("current_loss = 0\nrnn = RNN(n_letters, n_hidden, n_categories)\n", "current_loss = 0\n")],
    "115_snli_mlp": [("self.hids = []", "self.hids = nn.ModuleList()")],
    "116_refocus_diffusion": [("lr_scheduler.step()", "optimizer.step()\n    lr_scheduler.step()")],
    "117_binning_vae": [("torch.log(depths_out) * depths_in", "torch.log(depths_out + 1e-9) * depths_in")],
    "118_mm_ner": [("self.optimizer = torch.", "parameters.append(params)\n        self.optimizer = torch.")],
    "119_coca_pairs": [("self.latents = output.clone().detach()", "self.latents = output.clone()")],
    "120_row_lstm": [
        ("x.view(sequence_length, -1, input_size)", "x.view(-1, sequence_length, input_size).transpose(0, 1)")
    ],
    "121_ppo_tracker": [("torch.min(pg_losses1, pg_losses2).mean()", "-torch.min(pg_losses1, pg_losses2).mean()")],
    "122_neumf_implicit": [("return pred.sigmoid().view(-1)", "return pred.view(-1)")],
    "123_outlier_ae": [("        self.decoder.add_module('sigmoid', nn.Sigmoid())\n", "")],
    "124_face_id_sgd": [("'lr': 0.1", "'lr': 0.001")],
    "125_mlp_validation": [
        ("# validate the model", "# validate the model\n    model.eval()"),
        ("correct = 0", "model.eval()\ncorrect = 0"),
    ],
    "126_plant_multilabel": [
        ("        self.raw_labels = [row[1] for row in self.data]\n", ""),
        ("self.img_names ", "self.raw_labels = [row[1] for row in self.data]\n        self.img_names "),
    ],
    "127_popstats_sets": [("y_pred = model(x)", "y_pred = model(x).squeeze(1)")],
    "128_series_forecast": [
        (
            "mean, std",
            (
                "for y in panel:\n"
                "        gap = np.isnan(y)\n"
                "        y[gap] = np.interp(np.flatnonzero(gap), np.flatnonzero(~gap), y[~gap])\n"
                "    mean, std"
            ),
        )
    ],
    "129_slice_unet": [("            scheduler.step()", "        scheduler.step()")],
    "130_nmt_train_from": [
        (
            'optim = checkpoint["optim"]',
            (
                'optim = checkpoint["optim"]\n'
                "        saved = optim.optimizer.state_dict()\n"
                "        optim.set_parameters(model.parameters())\n"
                "        optim.optimizer.load_state_dict(saved)"
            ),
        ),
        (
            "    optim.set_parameters(model.parameters())\n    return",
            "        optim.set_parameters(model.parameters())\n    return",
        ),
    ],
    "131_intent_bigru": [("hidden.view(batch,", "hidden.transpose(0, 1).reshape(batch,")],
    "132_task_weights": [
        ("        loss.backward()\n", ""),
        ("if self.max_norm > 0:", "loss.backward()\n        if self.max_norm > 0:"),
    ],
    "133_toy_ddpm": [("if name in self.", 'name = name.replace("_orig_mod.", "")\n            if name in self.')],
    "134_lattice_tagger": [
        (
            "return state_post, arcs.sum(0)",
            "w = tot_scores_grad[:, None, None]\n        return state_post * w, (arcs * w).sum(0)",
        )
    ],
    "135_volume_patches": [
        (
            "torch.set_num_threads(1)",
            (
                "torch.set_num_threads(1)\n"
                "    get_worker_info().dataset.transform.random_state.seed(torch.initial_seed() % 2 ** 32)"
            ),
        )
    ],
    "136_linear_probe": [("run(probe, ", "backbone.eval()\nrun(probe, ")],
    "137_rgbd_depth": [
        (
            "half = F.avg_pool2d(depth.unsqueeze(1), 2).squeeze(1)",
            "depth = depth.unsqueeze(1)\n            half = F.avg_pool2d(depth, 2)",
        )
    ],
    "138_conv_text": [("self._layers: List[nn.Module] = []", "self._layers = nn.ModuleList()")],
    "139_pose_regression": [("torch.clamp(dot, min=-1, max=1)", "torch.clamp(dot, min=-1 + 1e-6, max=1 - 1e-6)")],
    "140_story_lm": [
        (
            'model = model.to_empty(device="cpu")',
            'model = model.to_empty(device="cpu")\n    model.wte.weight = model.lm_head.weight',
        )
    ],
    "141_ctc_tones": [("loss.backward()", "(loss / args.accum_grad_n_steps).backward()")],
    "142_event_vae": [("log_var - mean.pow(2) - log_var.exp()", "log_var - mean.pow(2) - log_var.exp(), dim=-1")],
    "143_adapter_digits": [
        (
            "self.lora_A = nn.Parameter(torch.zeros((in_features, r))",
            (
                "std_dev = 1 / torch.sqrt(torch.tensor(r).float())\n"
                "        self.lora_A = nn.Parameter(torch.randn((in_features, r)) * std_dev"
            ),
        )
    ],
    "144_token_detection": [("e_labels.view(-1)", "e_labels.masked_fill(attention_mask == 0, -100).view(-1)")],
    "145_distill_digits": [
        ("def train_kd(model, teacher_outputs,", "def train_kd(model, teacher_model,"),
        (
            "output_teacher_batch = teacher_outputs[i]",
            "with torch.no_grad():\n            output_teacher_batch = teacher_model(train_batch)",
        ),
        ("teacher_outputs = fetch_teacher_outputs(teacher_model, train_dl)", "teacher_model.eval()"),
        ("= train_kd(model, teacher_outputs,", "= train_kd(model, teacher_model,"),
    ],
    "146_vocoder_gan": [("\n        optim_g.step()\n        optim_d.step()\n", "")],
    "147_grid_dqn": [("self.target_q_net.state_dict()", "self.eval_q_net.state_dict()")],
    "148_table_resnet": [
        ("TabularNet().to(torch.bfloat16)", "TabularNet()"),
        (
            "pred = model(Xtr[idx].to(torch.bfloat16))",
            'with torch.autocast("cpu", dtype=torch.bfloat16):\n            pred = model(Xtr[idx])',
        ),
        ("model(Xva.to(torch.bfloat16)).float()", "model(Xva)"),
    ],
}
