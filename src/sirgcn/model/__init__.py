"""A trained model as an object and as a folder: fitting, prediction, calibration, explanation and export."""

from sirgcn.model.fitted import Member, Model
from sirgcn.model.fitting import FitSettings, fit
from sirgcn.model.folder import load, rewrite, save
from sirgcn.model.predicting import predict
from sirgcn.model.preparation import Preparation
from sirgcn.model.problem import Problem
from sirgcn.model.scaling import Scaling
from sirgcn.model.training import TrainSettings, train
from sirgcn.model.verified import FolderError

__all__ = [
    "FitSettings",
    "FolderError",
    "Member",
    "Model",
    "Preparation",
    "Problem",
    "Scaling",
    "TrainSettings",
    "fit",
    "load",
    "predict",
    "rewrite",
    "save",
    "train",
]
